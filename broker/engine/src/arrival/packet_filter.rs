//! Parser of TCP segments in packets, and the socket filter that admits only such segments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;

/// One direction of a TCP connection, as a packet names it. IPv4 inside of IPv6 sockets is IPv4 here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
}

/// What a segment says of the stream that it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub flow: Flow,
    pub sequence: u32, // of its first byte; of a SYN: one before the stream's first byte
    pub len: u32,      // bytes of payload
    pub opens: bool,   // SYN
    pub urgent: bool,  // urgent data: a byte of it may be missing from what is read
}

/// Parses the segment in `packet`, which begins with its IP header and may end after the TCP header. `None`: not a
/// segment of interest.
pub fn parse(packet: &[u8]) -> Option<Segment> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Segment> {
    let head = packet.first_chunk::<20>()?;
    let head_len = usize::from(head[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let is_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    if head[9] != TCP || is_fragment || head_len < 20 {
        return None;
    }
    let from = Ipv4Addr::from([head[12], head[13], head[14], head[15]]).into();
    let to = Ipv4Addr::from([head[16], head[17], head[18], head[19]]).into();
    parse_tcp(packet.get(head_len..)?, total.checked_sub(head_len)?, from, to)
}

fn parse_v6(packet: &[u8]) -> Option<Segment> {
    let head = packet.first_chunk::<40>()?;
    if head[6] != TCP {
        return None;
    }
    let from: [u8; 16] = head[8..24].try_into().ok()?;
    let to: [u8; 16] = head[24..40].try_into().ok()?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    parse_tcp(&packet[40..], len, Ipv6Addr::from(from).into(), Ipv6Addr::from(to).into())
}

fn parse_tcp(tcp: &[u8], total: usize, from: IpAddr, to: IpAddr) -> Option<Segment> {
    let head = tcp.first_chunk::<20>()?;
    let head_len = usize::from(head[12] >> 4) * 4;
    let flags = head[13];
    let len = total.checked_sub(head_len.max(20))? as u32;
    let opens = flags & (SYN | RST | FIN) == SYN;
    if flags & RST != 0 || (len == 0 && !opens) {
        return None;
    }
    Some(Segment {
        flow: Flow {
            from: (from, u16::from_be_bytes([head[0], head[1]])),
            to: (to, u16::from_be_bytes([head[2], head[3]])),
        },
        sequence: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        len,
        opens,
        urgent: flags & URG != 0,
    })
}

/// Whether the segment in `packet` is whole, and its checksum right (RFC 9293, 3.1). The kernel throws others away.
///
/// False also where `packet` ends before the segment does: then nobody can tell.
pub fn is_intact(packet: &[u8]) -> bool {
    pseudo_header(packet).is_some_and(|(addresses, tcp)| {
        let length = [u16::from(TCP), tcp.len() as u16].map(u16::to_be_bytes);
        let words = |bytes: &[u8]| -> u64 {
            bytes.chunks(2).map(|word| u64::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))).sum()
        };
        let mut sum = words(addresses) + words(length.as_flattened()) + words(tcp);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    })
}

/// The addresses that a segment's checksum covers too, and the segment, if it is whole.
fn pseudo_header(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let head = packet.first_chunk::<20>()?;
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            Some((packet.get(12..20)?, packet.get(usize::from(head[0] & 15) * 4..total)?))
        }
        6 => {
            let head = packet.first_chunk::<40>()?;
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            Some((packet.get(8..40)?, packet.get(40..40 + len)?))
        }
        _ => None,
    }
}

/// One instruction of the kernel's classic packet filter (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: Op,
    pub if_true: u8, // instructions to skip
    pub if_false: u8,
    pub operand: u32,
}

/// Bytes of a packet that the filter lets through: the longest headers.
const SNAP: u32 = 128;

/// What an instruction does to the accumulator A, the index X, or the place in the program; k is its operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Op {
    LoadByte = 0x30,  // A = packet[k]
    LoadHalf = 0x28,  // two bytes, as a number
    LoadByteX = 0x50, // A = packet[X + k]
    LoadHalfX = 0x48,
    HeadLenX = 0xb1,   // X = 4 * (packet[k] & 15)
    ShiftRight = 0x74, // A by k
    ShiftLeft = 0x64,
    AddX = 0x0c,
    AToX = 0x07,
    Equal = 0x15,    // A and k
    AnyBit = 0x45,   // of k in A
    GreaterX = 0x2d, // A than X
    Return = 0x06,
}

/// A filter that admits the headers of TCP segments to `ports` that carry bytes or open a connection.
///
/// At most 100 ports fit: jumps are short. A packet begins with its IP header.
pub fn filter(ports: &[u16]) -> Vec<Instruction> {
    const TESTS_V4: usize = 9; // of the ports; what follows lies behind them
    let behind_v4 = TESTS_V4 + ports.len();
    let v6 = behind_v4 + 9;
    let tests_v6 = v6 + 3;
    let behind_v6 = tests_v6 + ports.len();
    let (take, drop) = (behind_v6 + 8, behind_v6 + 9);
    let (tcp, syn) = (u32::from(TCP), u32::from(SYN));
    let tests = |first: usize, behind: usize| {
        let next = move |at: usize| if at + 1 == behind { drop } else { at + 1 };
        ports.iter().enumerate().map(move |(index, port)| (Op::Equal, u32::from(*port), behind, next(first + index)))
    };
    // (code, operand, where to go on if true, if false)
    let mut program = vec![
        (Op::LoadByte, 0, 1, 1),
        (Op::ShiftRight, 4, 2, 2),
        (Op::Equal, 4, 3, v6),
        (Op::LoadByte, 9, 4, 4),
        (Op::Equal, tcp, 5, drop),
        (Op::LoadHalf, 6, 6, 6),
        (Op::AnyBit, 0x3fff, drop, 7), // a fragment
        (Op::HeadLenX, 0, 8, 8),
        (Op::LoadHalfX, 2, 9, 9),
    ];
    program.extend(tests(TESTS_V4, behind_v4));
    let at = behind_v4;
    program.extend([
        (Op::LoadByteX, 13, at + 1, at + 1),
        (Op::AnyBit, syn, take, at + 2),
        (Op::LoadByteX, 12, at + 3, at + 3), // length of the TCP header
        (Op::ShiftRight, 4, at + 4, at + 4),
        (Op::ShiftLeft, 2, at + 5, at + 5),
        (Op::AddX, 0, at + 6, at + 6),
        (Op::AToX, 0, at + 7, at + 7),
        (Op::LoadHalf, 2, at + 8, at + 8), // length of the packet, against that of its headers
        (Op::GreaterX, 0, take, drop),
        (Op::LoadByte, 6, v6 + 1, v6 + 1),
        (Op::Equal, tcp, v6 + 2, drop),
        (Op::LoadHalf, 42, v6 + 3, v6 + 3),
    ]);
    program.extend(tests(tests_v6, behind_v6));
    let at = behind_v6;
    program.extend([
        (Op::LoadByte, 53, at + 1, at + 1),
        (Op::AnyBit, syn, take, at + 2),
        (Op::LoadByte, 52, at + 3, at + 3),
        (Op::ShiftRight, 4, at + 4, at + 4),
        (Op::ShiftLeft, 2, at + 5, at + 5),
        (Op::AToX, 0, at + 6, at + 6),
        (Op::LoadHalf, 4, at + 7, at + 7), // length behind the IPv6 header
        (Op::GreaterX, 0, take, drop),
        (Op::Return, SNAP, 0, 0),
        (Op::Return, 0, 0, 0),
    ]);
    let skip = |here: usize, target: usize| target.saturating_sub(here + 1) as u8;
    let instructions = program.iter().enumerate().map(|(here, (code, operand, yes, no))| Instruction {
        code: *code,
        if_true: skip(here, *yes),
        if_false: skip(here, *no),
        operand: *operand,
    });
    instructions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4150;
    const SECOND_PORT: u16 = 4151;

    struct Tcp {
        flags: u8,
        options: usize, // bytes
        payload: usize,
        port: u16,
    }

    fn tcp(given: &Tcp) -> Vec<u8> {
        let mut head = vec![0; 20 + given.options];
        head[0..2].copy_from_slice(&5_000u16.to_be_bytes());
        head[2..4].copy_from_slice(&given.port.to_be_bytes());
        head[4..8].copy_from_slice(&0xdead_beefu32.to_be_bytes());
        head[12] = (((20 + given.options) / 4) << 4) as u8;
        head[13] = given.flags;
        head
    }

    fn v4(given: &Tcp, ip_options: usize) -> Vec<u8> {
        let tcp = tcp(given);
        let mut packet = vec![0; 20 + ip_options];
        packet[0] = 0x40 | (5 + ip_options / 4) as u8;
        let len = packet.len() + tcp.len() + given.payload;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[6] = 0x40; // do not fragment
        packet[9] = TCP;
        packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
        packet[16..20].copy_from_slice(&[192, 0, 2, 2]);
        packet.extend(tcp);
        packet
    }

    fn v6(given: &Tcp) -> Vec<u8> {
        let tcp = tcp(given);
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&((tcp.len() + given.payload) as u16).to_be_bytes());
        packet[6] = TCP;
        (packet[23], packet[39]) = (1, 2);
        packet.extend(tcp);
        packet
    }

    /// What the kernel's interpreter would make of the filter, in as much as the filter uses it.
    fn lets_through(program: &[Instruction], packet: &[u8]) -> bool {
        let (mut a, mut x, mut here) = (0u32, 0u32, 0usize);
        let byte = |at: u32| packet.get(at as usize).map(|byte| u32::from(*byte));
        let half = |at: u32| byte(at).zip(byte(at + 1)).map(|(high, low)| high << 8 | low);
        loop {
            let Instruction { code, if_true, if_false, operand: k } = program[here];
            let jump = |yes: bool| usize::from(if yes { if_true } else { if_false });
            here += 1;
            let loaded = match code {
                Op::LoadByte => byte(k),
                Op::LoadHalf => half(k),
                Op::LoadByteX => byte(x + k),
                Op::LoadHalfX => half(x + k),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return false };
            a = loaded;
            match code {
                Op::HeadLenX => x = 4 * (byte(k).expect("a byte") & 15),
                Op::ShiftRight => a >>= k,
                Op::ShiftLeft => a <<= k,
                Op::AddX => a += x,
                Op::AToX => x = a,
                Op::Equal => here += jump(a == k),
                Op::AnyBit => here += jump(a & k != 0),
                Op::GreaterX => here += jump(a > x),
                Op::Return => return k > 0,
                _ => {}
            }
        }
    }

    fn cases() -> Vec<(&'static str, Tcp, bool)> {
        vec![
            ("bytes", Tcp { flags: 0x18, options: 12, payload: 1, port: PORT }, true),
            ("a bare acknowledgement", Tcp { flags: 0x10, options: 12, payload: 0, port: PORT }, false),
            ("the opening", Tcp { flags: SYN, options: 20, payload: 0, port: PORT }, true),
            ("bytes to the second port", Tcp { flags: 0x18, options: 12, payload: 1, port: SECOND_PORT }, true),
            ("another port", Tcp { flags: 0x18, options: 0, payload: 9, port: 80 }, false),
            ("the end, without bytes", Tcp { flags: FIN | 0x10, options: 0, payload: 0, port: PORT }, false),
        ]
    }

    #[test]
    fn the_filter_takes_what_carries_bytes_or_opens_a_connection_to_one_of_the_ports() {
        let program = filter(&[PORT, SECOND_PORT]);
        for (what, given, taken) in cases() {
            for packet in [v4(&given, 0), v4(&given, 8), v6(&given)] {
                assert_eq!(lets_through(&program, &packet), taken, "{what}: {packet:x?}");
                let parsed = parse(&packet);
                assert_eq!(
                    parsed.is_some_and(|segment| [PORT, SECOND_PORT].contains(&segment.flow.to.1)),
                    taken,
                    "{what}"
                );
            }
        }
    }

    #[test]
    fn a_segment_is_read_from_its_headers_alone() {
        let given = Tcp { flags: 0x18 | URG, options: 12, payload: 1_000, port: PORT };
        let flow = Flow { from: ([192, 0, 2, 1].into(), 5_000), to: ([192, 0, 2, 2].into(), PORT) };
        let expected = Segment { flow, sequence: 0xdead_beef, len: 1_000, opens: false, urgent: true };
        assert_eq!(parse(&v4(&given, 4)), Some(expected));
        let (from, to) = (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 2));
        let flow = Flow { from: (from.into(), 5_000), to: (to.into(), PORT) };
        assert_eq!(parse(&v6(&given)), Some(Segment { flow, ..expected }));
    }

    #[test]
    fn a_checksum_is_right_of_the_whole_segment_alone_and_of_no_other() {
        for mut packet in [
            v4(&Tcp { flags: 0x18, options: 12, payload: 5, port: PORT }, 4),
            v6(&Tcp { flags: 0x18, options: 12, payload: 5, port: PORT }),
        ] {
            packet.extend(b"PUB t");
            let at = packet.len() - 5 - 32 + 16;
            let right = (0..=u16::MAX)
                .filter(|sum| {
                    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
                    is_intact(&packet)
                })
                .collect::<Vec<_>>();
            assert_eq!(right.len(), 1, "one of 65,536");
            packet[at..at + 2].copy_from_slice(&right[0].to_be_bytes());
            assert!(is_intact(&packet));
            assert!(!is_intact(&packet[..packet.len() - 1]), "cut");
            for index in (at - 16..packet.len()).step_by(7) {
                let mut other = packet.clone();
                other[index] ^= 0x10;
                assert!(!is_intact(&other), "byte {index}");
            }
        }
    }

    #[test]
    fn a_checksum_covers_addresses_header_and_bytes() {
        let hex = concat!(
            "450000330001400040063cc27f0000017f000001",
            "13881036000003e9000007d25018020001c50000",
            "50554220740a0000000178"
        );
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        let packet: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect(); // "PUB t", from 127.0.0.1
        assert!(is_intact(&packet));
        assert_eq!(parse(&packet).map(|segment| segment.len), Some(11));
        let mut other = packet.clone();
        other[36] ^= 1; // the checksum itself
        assert!(!is_intact(&other));
    }

    #[test]
    fn what_is_no_segment_is_none() {
        let whole = v4(&Tcp { flags: 0x18, options: 0, payload: 5, port: PORT }, 0);
        for len in 0..40 {
            assert_eq!(parse(&whole[..len]), None);
        }
        let change = |at: usize, byte: u8| {
            let mut packet = whole.clone();
            packet[at] = byte;
            packet
        };
        let program = filter(&[PORT]);
        for (what, packet) in [("UDP", change(9, 17)), ("a fragment", change(7, 1)), ("no IP", change(0, 0x10))] {
            assert_eq!(parse(&packet), None, "{what}");
            assert!(!lets_through(&program, &packet), "{what}");
        }
        for (what, packet) in [
            ("a short IP header", change(0, 0x44)),
            ("a length below the headers", change(3, 30)),
            ("a reset", change(33, 0x14)),
        ] {
            assert_eq!(parse(&packet), None, "{what}");
        }
    }
}
