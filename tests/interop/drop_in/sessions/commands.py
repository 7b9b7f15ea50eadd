"""Every command in every malformed form, each on a connection of its own: which error, and does the connection stay."""

from __future__ import annotations

from tests.interop.drop_in.client import messages, sized
from tests.interop.drop_in.session import MAGIC, Play, Sessions, identification

SESSIONS = Sessions()
ID = b"0123456789abcdef"
_BIG = 1 << 20  # bytes of the largest message
_BODY = 5 << 20  # bytes of the largest body
_SUB = b"SUB commands ch\n"


@SESSIONS.add("magic")
async def magic(play: Play) -> None:
    for label, word in {
        "V1": b"  V1",
        "one space": b" V2 ",
        "V3": b"  V3",
        "HTTP": b"GET ",
        "zeroes": bytes(4),
    }.items():
        await play.once(label, b"", word, last=b"")
    for label, word in {"nothing": b"", "short": b"  V"}.items():
        await play.once(label, b"", word, last=b"")
    await play.once("lower case", b"", b"  v2", last=b"")
    await play.once("twice", MAGIC)


@SESSIONS.add("words")
async def words(play: Play) -> None:
    await play.each(
        {
            "unknown": b"FROB\n",
            "lower case": b"nop\n",
            "empty line": b"\n",
            "space": b" \n",
            "leading space": b" NOP\n",
            "trailing space": b"NOP \n",
            "return and newline": b"NOP\r\n",
            "two returns": b"NOP\r\r\n",
            "extra words": b"NOP a b c\n",
            "binary": b"\xff\xfe\x00\n",
            "quote": b'FR"OB\n',
            "tab": b"PUB\tt\n",
            "not UTF-8 topic": b"PUB \xff\xfe\n" + sized(b"x"),
            "long word": b"F" * 300 + b"\n",
            "longest line": b"NOP " + b"x" * 16_379 + b"\n",
            "line too long": b"NOP " + b"x" * 16_380 + b"\n",
            "no newline": b"NOP" + b"x" * 20_000,
        }
    )


@SESSIONS.add("state: before SUB")
async def before_sub(play: Play) -> None:
    await play.each(
        {
            "RDY": b"RDY 1\n",
            "FIN": b"FIN " + ID + b"\n",
            "REQ": b"REQ " + ID + b" 0\n",
            "TOUCH": b"TOUCH " + ID + b"\n",
            "CLS": b"CLS\n",
            "FIN without id": b"FIN\n",
            "RDY with letters": b"RDY x\n",
        }
    )


@SESSIONS.add("state: after SUB")
async def after_sub(play: Play) -> None:
    await play.each(
        {
            "SUB": b"SUB commands ch\n",
            "IDENTIFY": identification(),
            "AUTH": b"AUTH\n" + sized(b"s"),
            "NOP": b"NOP\n",
            "PUB": b"PUB commands_elsewhere\n" + sized(b"x"),
            "unknown": b"FROB\n",
        },
        before=_SUB,
    )


@SESSIONS.add("state: after CLS")
async def after_cls(play: Play) -> None:
    await play.each(
        {
            "nothing": b"",
            "RDY": b"RDY 1\n",
            "RDY with letters": b"RDY x\n",
            "RDY too large": b"RDY 2501\n",
            "FIN": b"FIN " + ID + b"\n",
            "CLS": b"CLS\n",
            "SUB": b"SUB commands ch\n",
            "IDENTIFY": identification(),
            "NOP": b"NOP\n",
        },
        before=_SUB + b"CLS\n",
    )


@SESSIONS.add("CLS with words")
async def cls_with_words(play: Play) -> None:
    await play.once("words", _SUB + b"CLS now please\n")


@SESSIONS.add("names")
async def names(play: Play) -> None:
    given = {
        "longest": b"n" * 64,
        "too long": b"n" * 65,
        "ephemeral": b"n#ephemeral",
        "longest ephemeral": b"n" * 54 + b"#ephemeral",
        "too long ephemeral": b"n" * 55 + b"#ephemeral",
        "only ephemeral": b"#ephemeral",
        "twice ephemeral": b"n#ephemeral#ephemeral",
        "hash": b"n#e",
        "dollar": b"n$",
        "quote": b'n"q',
        "backslash": b"n\\q",
        "control": b"n\x01",
        "return inside": b"n\rq",
        "slash": b"n/q",
        "colon": b"n:q",
        "all kinds": b".aZ0_-",
        "umlaut": "ü".encode(),
        "empty": b"",
    }
    for label, name in given.items():
        await play.once(f"PUB {label}", b"PUB " + name + b"\n" + sized(b"x"))
        await play.once(f"SUB topic {label}", b"SUB " + name + b" ch\n")
        await play.once(f"SUB channel {label}", b"SUB names_of_channels " + name + b"\n")
        await play.once(f"MPUB {label}", b"MPUB " + name + b"\n" + messages(b"x"))
        await play.once(f"DPUB {label}", b"DPUB " + name + b" 0\n" + sized(b"x"))


@SESSIONS.add("SUB")
async def sub(play: Play) -> None:
    await play.each(
        {
            "no words": b"SUB\n",
            "one word": b"SUB commands\n",
            "three words": b"SUB commands ch more\n",
            "two spaces": b"SUB  commands ch\n",
            "heartbeats off": identification(heartbeat_interval=-1) + b"SUB commands ch\n",
            "heartbeats off and no words": identification(heartbeat_interval=-1) + b"SUB\n",
            "twice": b"SUB commands ch\nSUB commands other\n",
        }
    )


@SESSIONS.add("PUB")
async def pub(play: Play) -> None:
    await play.each(
        {
            "no words": b"PUB\n",
            "two words": b"PUB commands more\n" + sized(b"x"),
            "empty body": b"PUB commands\n" + sized(b""),
            "negative size": b"PUB commands\n\xff\xff\xff\xff",
            "smallest": b"PUB commands\n" + sized(b"x"),
            "largest": b"PUB commands\n" + sized(b"x" * _BIG),
            "too big": b"PUB commands\n" + (_BIG + 1).to_bytes(4, "big"),
            "too big, all of it": b"PUB commands\n" + sized(b"x" * (_BIG + 1)),
            "largest size": b"PUB commands\n\x7f\xff\xff\xff",
        }
    )
    await play.once("size cut", b"PUB commands\n\x00\x00", last=b"")
    await play.once("no size", b"PUB commands\n", last=b"")
    await play.once("body cut", b"PUB commands\n" + sized(b"xyz")[:-1], last=b"")


@SESSIONS.add("DPUB")
async def dpub(play: Play) -> None:
    await play.each(
        {
            "no words": b"DPUB\n",
            "one word": b"DPUB commands\n",
            "three words": b"DPUB commands 0 more\n" + sized(b"x"),
            "letters": b"DPUB commands x\n" + sized(b"x"),
            "negative": b"DPUB commands -1\n" + sized(b"x"),
            "plus": b"DPUB commands +1\n" + sized(b"x"),
            "fraction": b"DPUB commands 1.5\n" + sized(b"x"),
            "empty number": b"DPUB commands \n" + sized(b"x"),
            "leading zeroes": b"DPUB commands 0000\n" + sized(b"x"),
            "longest": b"DPUB commands 3600000\n" + sized(b"x"),
            "too long": b"DPUB commands 3600001\n" + sized(b"x"),
            "far too long": b"DPUB commands 99999999999999\n" + sized(b"x"),
            "beyond 64 bits": b"DPUB commands 18446744073709551617\n" + sized(b"x"),
            "beyond 63 bits": b"DPUB commands 9223372036854775808\n" + sized(b"x"),
            "bad topic and bad number": b"DPUB $ x\n" + sized(b"x"),
            "empty body": b"DPUB commands 0\n" + sized(b""),
            "negative size": b"DPUB commands 0\n\xff\xff\xff\xff",
            "too big": b"DPUB commands 0\n" + (_BIG + 1).to_bytes(4, "big"),
        }
    )
    await play.once("no size", b"DPUB commands 0\n", last=b"")
    await play.once("body cut", b"DPUB commands 0\n" + sized(b"xyz")[:-1], last=b"")


@SESSIONS.add("MPUB")
async def mpub(play: Play) -> None:
    def outer(body: bytes) -> bytes:
        return b"MPUB commands\n" + sized(body)

    count = (1).to_bytes(4, "big")
    await play.each(
        {
            "no words": b"MPUB\n",
            "two words": b"MPUB commands more\n" + messages(b"x"),
            "one": b"MPUB commands\n" + messages(b"x"),
            "three": b"MPUB commands\n" + messages(b"x", b"yy", b"zzz"),
            "empty": outer(b""),
            "negative size": b"MPUB commands\n\xff\xff\xff\xff",
            "largest size": b"MPUB commands\n\x7f\xff\xff\xff",
            "too big": b"MPUB commands\n" + (_BODY + 1).to_bytes(4, "big"),
            "count 0": outer(bytes(4)),
            "count negative": outer(b"\xff\xff\xff\xff"),
            "count too large": outer((_BODY).to_bytes(4, "big") + sized(b"x")),
            "empty message": outer(count + sized(b"")),
            "negative message": outer(count + b"\xff\xff\xff\xff"),
            "message too big": outer(count + (_BIG + 1).to_bytes(4, "big")),
            "second empty": outer((2).to_bytes(4, "big") + sized(b"x") + sized(b"")),
            "bad topic": b"MPUB $\n" + messages(b"x"),
            "bad topic and bad size": b"MPUB $\n" + bytes(4),
        }
    )
    cut = messages(b"x", b"yy", b"zzz")
    for label, end in {"count": 6, "first size": 10, "second body": 18, "third size": 21}.items():
        await play.once(f"cut in {label}", b"MPUB commands\n" + cut[:end], last=b"")
    await play.once("no size", b"MPUB commands\n", last=b"")


@SESSIONS.add("MPUB whose parts do not fit")
async def mpub_misfits(play: Play) -> None:
    def outer(body: bytes) -> bytes:
        return b"MPUB commands\n" + sized(body)

    await play.once("fewer than it says", outer((2).to_bytes(4, "big") + sized(b"x")), last=b"")
    await play.once("more than it says", outer((1).to_bytes(4, "big") + sized(b"x") + sized(b"y")))
    await play.once("a body of 3 bytes", outer(b"\0\0\0"), last=b"")
    await play.once(
        "a message beyond the body", outer((1).to_bytes(4, "big") + (9).to_bytes(4, "big") + b"x"), last=b""
    )


@SESSIONS.add("RDY")
async def rdy(play: Play) -> None:
    await play.each(
        {
            "no word": b"RDY\n",
            "0": b"RDY 0\n",
            "largest": b"RDY 2500\n",
            "too large": b"RDY 2501\n",
            "negative": b"RDY -1\n",
            "plus": b"RDY +1\n",
            "letters": b"RDY x\n",
            "empty": b"RDY \n",
            "fraction": b"RDY 1.0\n",
            "leading zeroes": b"RDY 0001\n",
            "beyond 64 bits": b"RDY 18446744073709551617\n",
            "beyond 63 bits": b"RDY 9223372036854775809\n",
            "two words": b"RDY 1 2\n",
        },
        before=b"SUB commands_rdy ch\n",
    )


@SESSIONS.add("FIN, REQ and TOUCH of nothing")
async def answers_to_nothing(play: Play) -> None:
    for word in (b"FIN", b"TOUCH", b"REQ"):
        tail = b" 0" if word == b"REQ" else b""
        ids = {
            "unknown": ID,
            "short": ID[:-1],
            "long": ID + b"0",
            "letters": b"not-hexadecimal!",
            "none": b"",
        }
        for label, ident in ids.items():
            await play.once(f"{word.decode()} {label}", _SUB + word + b" " + ident + tail + b"\n")
        await play.once(f"{word.decode()} alone", _SUB + word + b"\n")
    for label, number in {"letters": b"x", "negative": b"-1", "empty": b"", "huge": b"99999999999999999999"}.items():
        await play.once(f"REQ {label}", _SUB + b"REQ " + ID + b" " + number + b"\n")
    await play.once("REQ without number", _SUB + b"REQ " + ID + b"\n")
    await play.once("REQ bad id, bad number", _SUB + b"REQ short x\n")


@SESSIONS.add("AUTH where there is none")
async def auth_disabled(play: Play) -> None:
    await play.each(
        {
            "secret": b"AUTH\n" + sized(b"s"),
            "with a word": b"AUTH now\n" + sized(b"s"),
            "empty": b"AUTH\n" + sized(b""),
            "negative size": b"AUTH\n\xff\xff\xff\xff",
            "too big": b"AUTH\n" + (_BODY + 1).to_bytes(4, "big"),
        }
    )
    await play.once("no size", b"AUTH\n", last=b"")
    await play.once("cut", b"AUTH\n" + sized(b"secret")[:-1], last=b"")


@SESSIONS.add("pipelining")
async def pipelining(play: Play) -> None:
    await play.once("many", b"NOP\n".join(b"PUB pipelined\n" + sized(b"%d" % number) for number in range(20)))
    await play.once("an error between", b"PUB pipelined\n" + sized(b"x") + b"PUB $\n" + sized(b"x"))
    await play.once(
        "everything",
        identification(client_id="c") + b"PUB pipelined_too\n" + sized(b"x") + b"SUB pipelined_too ch\nCLS\n",
    )
    client = await play.connect("byte by byte", b"")
    for byte in MAGIC + identification(client_id="c") + b"NOP\nPUB pipelined\n" + sized(b"abc"):
        await client.send(bytes([byte]))
    await client.finish()
