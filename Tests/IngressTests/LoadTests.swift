import IngressCore
import Jobs
import RedisQueue
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct LoadTests {
    @Test func everyAnswerOfTwoThousandConcurrentWritesIsOneEntry() async throws {
        let (connections, total) = (64, 2000)
        try await IngressRig.run({
            $0.loops = 2
            $0.sharesPort = true
            $0.partitions = 4
            $0.unattestedPerMinute = 30
        }) { rig in
            let acknowledged = try await withThrowingTaskGroup(of: [String].self) { group in
                for connection in 0..<connections {
                    group.addTask {
                        let client = try await rig.connect()
                        var names: [String] = []
                        for number in stride(from: connection, to: total, by: connections) {
                            let user = "user_\(number)"
                            let request =
                                switch number % 3 {
                                case 0: IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody(user))
                                case 1: IngressRig.request(SDKRoute.attribute.path, IngressRig.attributeBody(user))
                                default:
                                    IngressRig.request(
                                        SDKRoute.attribute.path,
                                        IngressRig.attributeBody(user, more: #","jws":"aaaa.bbbb.cccc""#))
                                }
                            if try await client.exchange(request).status == 200 { names.append(user) }
                        }
                        return names
                    }
                }
                return try await group.reduce(into: []) { $0 += $1 }
            }
            #expect(acknowledged.count == total)
            let written = try await rig.jobs(.write)
            let jobs = try await written + rig.jobs(.verify)
            let users = try jobs.map { job in
                job.header.kind == .identify
                    ? try IdentifyWrite(payload: job.payload).appUserID
                    : try AttributeWrite(payload: job.payload).appUserID
            }
            #expect(users.sorted() == acknowledged.sorted())
            #expect(written.count { $0.header.kind == .identify } == 667)
            for partition in 0..<rig.keys.partitions {
                let stamps = jobs.filter { $0.partition == partition }.map(\.header.stamp)
                #expect(!stamps.isEmpty)
                #expect(Set(stamps).count == stamps.count)
                for lane in [Lane.write, .verify] {
                    let inOrder = try await rig.jobs(lane).filter { $0.partition == partition }.map(\.header.stamp)
                    #expect(inOrder == inOrder.sorted())
                }
            }
        }
    }
}
