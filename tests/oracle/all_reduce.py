"""All-reduces that add real vectors up, message by message, and count what each device sends: no code is shared."""

from collections import Counter

Vectors = list[list[float]]


class Traffic:
    """Numbers that each device sends: over the links of its node, and over its card to other nodes."""

    def __init__(self, each: int) -> None:
        self.each, self.inside, self.away = each, Counter[int](), Counter[int]()

    def send(self, sender: int, receiver: int, numbers: int) -> None:
        same = sender // self.each == receiver // self.each
        (self.inside if same else self.away)[sender] += numbers


def ring(vectors: Vectors, members: list[int], part: range, traffic: Traffic) -> None:
    """Reduce-scatter and all-gather the numbers `part` around a ring of members, in 2 (n-1) steps, in place."""
    n = len(members)
    chunks = [part[at * len(part) // n : (at + 1) * len(part) // n] for at in range(n)]
    for step in range(2 * (n - 1)):
        sums = step < n - 1
        messages = []
        for place, device in enumerate(members):
            chunk = chunks[(place - step) % n]
            messages.append((device, members[(place + 1) % n], chunk, [vectors[device][at] for at in chunk]))
        for sender, receiver, chunk, numbers in messages:
            traffic.send(sender, receiver, len(chunk))
            for at, number in zip(chunk, numbers, strict=True):
                vectors[receiver][at] = (vectors[receiver][at] if sums else 0.0) + number


def rings_over_all(vectors: Vectors, each: int) -> Traffic:
    """NCCL's rings: one for each place in a node, which leaves the node at that place, with a share of the numbers."""
    traffic, count, width = Traffic(each), len(vectors), len(vectors[0])
    for first in range(each):
        turn = [(first + 1 + at) % each for at in range(each)]  # the last of a node is `first`
        members = [node * each + place for node in range(count // each) for place in turn]
        ring(vectors, members, range(first * width // each, (first + 1) * width // each), traffic)
    return traffic


def hierarchical(vectors: Vectors, each: int) -> Traffic:
    """Reduce-scatter in each node, all-reduce of each share over the nodes, all-gather in each node."""
    traffic, count, width = Traffic(each), len(vectors), len(vectors[0])
    shares = [range(at * width // each, (at + 1) * width // each) for at in range(each)]
    nodes = [range(first, first + each) for first in range(0, count, each)]
    for node in nodes:
        before = {device: list(vectors[device]) for device in node}
        for place, device in enumerate(node):
            for other in node:
                if other != device:
                    traffic.send(other, device, len(shares[place]))
                    for at in shares[place]:
                        vectors[device][at] += before[other][at]
    for place in range(each):
        ring(vectors, [node[place] for node in nodes], shares[place], traffic)
    for node in nodes:
        for place, device in enumerate(node):
            for other in node:
                if other != device:
                    traffic.send(device, other, len(shares[place]))
                    for at in shares[place]:
                        vectors[other][at] = vectors[device][at]
    return traffic
