internal import Glibc

/// Prints a line of progress at once. SwiftPM hands on what tests print through a pipe, terminal or not, in which lines
/// wait until 4 KiB have come together: a run of half an hour would be silent to its end.
package func tell(_ line: String) {
    print(line)
    fflush(nil)
}
