import Glibc

func makePair(_ pair: inout [Int32]) -> Int32 {
    socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0, &pair)
}
func closeDescriptor(_ fd: Int32) { close(fd) }
func writeByte(_ fd: Int32) {
    var byte: UInt8 = 1
    write(fd, &byte, 1)
}
func readByte(_ fd: Int32) -> Bool {
    var byte: UInt8 = 0
    return read(fd, &byte, 1) == 1
}
func endSending(_ fd: Int32) { shutdown(fd, Int32(SHUT_WR)) }
