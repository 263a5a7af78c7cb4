/// A few values, the most recently used first: with the handful that are in use at a time, looking through them in
/// turn beats hashing kilobytes, and no input can be built to collide.
struct RecentList<Element: Sendable>: Sendable {
    private var elements: [Element] = []
    private let capacity: Int

    init(capacity: Int) { self.capacity = capacity }

    var count: Int { elements.count }

    /// The first element that matches, which moves to the front.
    mutating func use(where matches: (Element) -> Bool) -> Element? {
        guard let index = elements.firstIndex(where: matches) else { return nil }
        let element = elements[index]
        if index > 0 {
            elements.remove(at: index)
            elements.insert(element, at: 0)
        }
        return element
    }

    /// Puts an element in front, unless one that matches is there; the least recently used one leaves when it is full.
    mutating func insert(_ element: Element, unless matches: (Element) -> Bool) {
        guard !elements.contains(where: matches) else { return }
        if elements.count >= capacity { elements.removeLast() }
        elements.insert(element, at: 0)
    }
}
