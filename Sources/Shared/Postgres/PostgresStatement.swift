/// One statement with its values.
package struct PostgresStatement: Sendable {
    /// `$1`… stand for the parameters, whose types must be the same at each use of the text.
    package let sql: String
    package let parameters: [PostgresParameter]

    package init(_ sql: String, _ parameters: [PostgresParameter]) {
        self.sql = sql
        self.parameters = parameters
    }
}
