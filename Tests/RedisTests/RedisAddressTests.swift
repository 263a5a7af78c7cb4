import Redis
import Testing

@Suite struct RedisAddressTests {
    @Test func theThreeFormsAreUnderstood() throws {
        #expect(try RedisAddress("unix:///run/redis.sock") == RedisAddress(endpoint: .unix(path: "/run/redis.sock")))
        #expect(
            try RedisAddress("redis://cache.local:6380/3")
                == RedisAddress(endpoint: .tcp(host: "cache.local", port: 6380), database: 3))
        #expect(
            try RedisAddress("redis://:p%40ss@10.0.0.1:6379/0")
                == RedisAddress(endpoint: .tcp(host: "10.0.0.1", port: 6379), password: "p@ss"))
    }

    @Test func theRestOfTheUsualFormsIsUnderstoodToo() throws {
        #expect(try RedisAddress("redis://h") == RedisAddress(endpoint: .tcp(host: "h", port: 6379)))
        #expect(try RedisAddress("redis://h/") == RedisAddress(endpoint: .tcp(host: "h", port: 6379)))
        #expect(try RedisAddress("redis://[::1]:7000/1").endpoint == .tcp(host: "::1", port: 7000))
        let login = try RedisAddress("redis://worker:a@b/c@h:1")
        #expect(login.user == "worker")
        #expect(login.password == "a@b/c")
        #expect(try RedisAddress("unix:///run/a@b.sock").endpoint == .unix(path: "/run/a@b.sock"))
        #expect(
            try RedisAddress("unix://:secret@/run/s?db=2")
                == RedisAddress(endpoint: .unix(path: "/run/s"), password: "secret", database: 2))
    }

    @Test func sentinelsAndClustersAreListsOfHosts() throws {
        let one = RedisHost(name: "10.0.0.1", port: 26379)
        #expect(
            try RedisAddress("redis-sentinel://:p%40ss@10.0.0.1,[::1]:5000,10.0.0.1:26379/main/2")
                == RedisAddress(
                    endpoint: .sentinel(name: "main", sentinels: [one, RedisHost(name: "::1", port: 5000)]),
                    password: "p@ss", database: 2))
        #expect(
            try RedisAddress("redis-cluster://me:secret@a,b:7001/")
                == RedisAddress(
                    endpoint: .cluster(nodes: [RedisHost(name: "a", port: 6379), RedisHost(name: "b", port: 7001)]),
                    user: "me", password: "secret"))
    }

    @Test(arguments: [
        "redis-sentinel://", "redis-sentinel://h", "redis-sentinel://h/", "redis-sentinel://h,/main",
        "redis-sentinel://h:x/main", "redis-sentinel://h/main/x", "redis-cluster://", "redis-cluster://,h",
        "redis-cluster://h/1", "redis-cluster://h:0",
        "", "redis", "http://h", "rediss://h", "unix://", "unix://relative", "unix:///", "redis://", "redis://:6379",
        "redis://h:0", "redis://h:65536", "redis://h:x", "redis://h:+1", "redis://h/x", "redis://h/-1", "redis://h/+1",
        "redis://h/9999999999", "redis://pass@h", "redis://:@h", "redis://:%zz@h", "redis://:%4@h", "redis://:%ff@h",
        "redis://[::1:6379", "redis://[::1]6379", "unix:///a?x=1", "unix:///a?db=x",
        "unix:///" + String(repeating: "a", count: 108),
    ])
    func anythingElseIsRefused(_ text: String) {
        do throws(RedisError) {
            let address = try RedisAddress(text)
            Issue.record("taken as \(address)")
        } catch {
            #expect(error.code == .invalidAddress)
            #expect(!error.message.isEmpty)
        }
    }

    @Test func theDescriptionHidesThePassword() throws {
        let address = try RedisAddress("redis://me:secret@h:1/2")
        #expect(address.description == "redis://me:***@h:1/2")
        for text in ["redis-sentinel://me:secret@a:1,[::1]:2/main/3", "redis-cluster://me:secret@a:1,b:2"] {
            #expect(try RedisAddress(text).description == text.replacing("secret", with: "***"))
        }
        #expect(try RedisAddress(RedisAddress("unix:///a?db=2").description).database == 2)
    }
}
