"""Numbers and byte strings of a message: LEB128 variable-length integers, signed ones by zigzag, as in protobuf."""

from __future__ import annotations

from srtm.errors import PeerError

LONGEST_VARINT = 19  # bytes: 133 bits, for levels in units


class Writer:
    """Appends to ``data``."""

    def __init__(self) -> None:
        self.data = bytearray()

    def uint(self, value: int) -> None:
        """A number of at least 0."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def sint(self, value: int) -> None:
        self.uint(2 * value if value >= 0 else -2 * value - 1)

    def raw(self, value: bytes) -> None:
        self.data += value


class Reader:
    """Reads ``data`` from its beginning. Every method raises PeerError where the data are not what it reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def uint(self) -> int:
        value = 0
        for position in range(LONGEST_VARINT):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return value
        raise PeerError(f"a number has more than {LONGEST_VARINT} bytes")

    def sint(self) -> int:
        value = self.uint()
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def raw(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise PeerError(f"a message ends at byte {len(self._data)}, inside a field of {size} bytes")
        found = self._data[self._at : end]
        self._at = end
        return found

    def count(self, least_bytes: int) -> int:
        """How many elements of ``least_bytes`` at least follow: never more than there are bytes for."""
        count = self.uint()
        if count * least_bytes > len(self._data) - self._at:
            raise PeerError(f"a message of {len(self._data)} bytes says that {count} elements follow")
        return count

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._data):
            raise PeerError(f"{len(self._data) - self._at} bytes follow the end of a message")
