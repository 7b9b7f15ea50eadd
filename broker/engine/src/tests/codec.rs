use proptest::prelude::*;

use super::*;

fn context(config: &Config, state: State) -> Context<'_> {
    Context {
        needs_tls: false,
        asks_left: false,
        checked: false,
        seen: Seen::default(),
        state,
        heartbeats: true,
        config,
    }
}

/// Every command of a stream, as text, feeding it in pieces of the given sizes and keeping what is left between them.
fn commands(stream: &[u8], cuts: &[usize], config: &Config) -> Vec<String> {
    let mut seen = Vec::new();
    let mut buffer = Vec::new();
    let mut at = 0;
    for cut in cuts.iter().copied().chain([stream.len()]) {
        let end = cut.clamp(at, stream.len());
        buffer.extend_from_slice(&stream[at..end]);
        at = end;
        loop {
            match parse(&buffer, context(config, State::Subscribed)) {
                Ok(Some((command, len))) => {
                    seen.push(format!("{command:?}"));
                    buffer.drain(..len);
                }
                Ok(None) => break,
                Err(error) => {
                    seen.push(format!("{error:?}"));
                    return seen;
                }
            }
        }
    }
    seen
}

const STREAM: &[u8] = b"PUB t\n\0\0\0\x03abcNOP\r\nRDY 5\nFIN 0123456789abcdef\nREQ 0123456789abcdef 10\n\
MPUB t#ephemeral\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01x\0\0\0\x02yzDPUB t 7\n\0\0\0\x01dTOUCH 0123456789abcdef\nCLS\n";

#[test]
fn a_stream_gives_its_commands_whole_and_byte_by_byte() {
    let config = Config::default();
    let whole = commands(STREAM, &[], &config);
    assert_eq!(whole.len(), 9);
    assert!(whole[8] == "Cls", "{whole:?}");
    let every_byte: Vec<usize> = (1..STREAM.len()).collect();
    assert_eq!(commands(STREAM, &every_byte, &config), whole);
}

#[test]
fn a_command_tells_how_long_it_will_be_once_its_size_is_there() {
    let command = b"MPUB t\n\0\0\x10\0\0\0\0\x02";
    assert!((0..11).all(|len| announced_len(&command[..len]).is_none()));
    assert_eq!((announced_len(&command[..11]), announced_len(command)), (Some(11 + 4_096), Some(11 + 4_096)));
    assert_eq!(announced_len(&[b'x'; 20_000]), None, "no line is that long");
}

#[test]
fn bad_commands_are_refused_with_nsqds_texts() {
    let config = Config::default();
    let long = vec![b'x'; 17_000];
    let cases: &[(&[u8], State, &str)] = &[
        (b"BAD\n", State::Init, "E_INVALID invalid command BAD"),
        (b"LEFT t 1\n", State::Init, "E_INVALID invalid command LEFT"),
        (b"\n", State::Init, "E_INVALID invalid command "),
        (b"PUB\n", State::Init, "E_INVALID PUB insufficient number of parameters"),
        (b"PUB t$\n", State::Init, "E_BAD_TOPIC PUB topic name \"t$\" is not valid"),
        (b"PUB #ephemeral\n", State::Init, "E_BAD_TOPIC PUB topic name \"#ephemeral\" is not valid"),
        (b"PUB t\n\0\0\0\0", State::Init, "E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n\xff\xff\xff\xff", State::Init, "E_BAD_MESSAGE PUB invalid message body size -1"),
        (b"PUB t\n\x7f\0\0\0", State::Init, "E_BAD_MESSAGE PUB message too big 2130706432 > 1048576"),
        (b"DPUB t -1\n", State::Init, "E_INVALID DPUB could not parse timeout -1"),
        (b"DPUB t 3600001\n", State::Init, "E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        (b"SUB t c\n", State::Subscribed, "E_INVALID cannot SUB in current state"),
        (b"SUB t\n", State::Init, "E_INVALID SUB insufficient number of parameters"),
        (b"SUB t c$\n", State::Init, "E_BAD_CHANNEL SUB channel name \"c$\" is not valid"),
        (b"RDY 1\n", State::Init, "E_INVALID cannot RDY in current state"),
        (b"RDY x\n", State::Subscribed, "E_INVALID RDY could not parse count x"),
        (b"RDY 2501\n", State::Subscribed, "E_INVALID RDY count 2501 out of range 0-2500"),
        (b"FIN\n", State::Subscribed, "E_INVALID FIN insufficient number of params"),
        (b"FIN abc\n", State::Subscribed, "E_INVALID invalid message ID"),
        (b"REQ 0123456789abcdef\n", State::Subscribed, "E_INVALID REQ insufficient number of params"),
        (b"CLS\n", State::Init, "E_INVALID cannot CLS in current state"),
        (b"AUTH x\n", State::Init, "E_INVALID AUTH invalid number of parameters"),
        (b"IDENTIFY\n\0\0\0\0", State::Init, "E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"MPUB t\n\0\0\0\0", State::Init, "E_BAD_BODY MPUB invalid body size 0"),
        (b"MPUB t\n\0\0\0\x04\0\0\0\0", State::Init, "E_BAD_BODY MPUB invalid message count 0"),
        (b"MPUB t\n\0\0\0\x08\0\0\0\x01\0\0\0\0", State::Init, "E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
        (b"MPUB t\n\0\0\0\x06\0\0\0\x01\0\0", State::Init, "E_BAD_MESSAGE MPUB failed to read message(0) body size"),
        (b"MPUB t\n\0\0\0\x08\0\0\0\x01\0\0\0\x05", State::Init, "E_BAD_MESSAGE MPUB failed to read message body"),
    ];
    for (bytes, state, text) in cases {
        match parse(bytes, context(&config, *state)) {
            Err(ParseError::Wire(error)) => assert_eq!(&error.to_string(), text),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(parse(&long, context(&config, State::Init)), Err(ParseError::LineTooLong));
}

#[test]
fn whatever_rdy_says_is_nothing_to_a_closing_connection() {
    let config = Config::default();
    for line in ["RDY 1\n", "RDY x\n", "RDY 2501\n"] {
        assert_eq!(
            parse(line.as_bytes(), context(&config, State::Closing)),
            Ok(Some((Command::Nop, line.len()))),
            "{line}"
        );
    }
}

#[test]
fn names_are_nsqds() {
    for good in ["t", "a.b_c-D9", "x#ephemeral", &"a".repeat(64)] {
        assert!(name(good.as_bytes()).is_some(), "{good}");
    }
    for bad in ["", "#ephemeral", "a b", "a#", &"a".repeat(65), "ü"] {
        assert!(name(bad.as_bytes()).is_none(), "{bad}");
    }
}

#[test]
fn no_command_names_a_topic_that_a_path_may_lose() {
    let config = Config::default();
    for dots in [".", ".."] {
        for line in [
            format!("PUB {dots}\n\0\0\0\x01x"),
            format!("MPUB {dots}\n"),
            format!("DPUB {dots} 1\n"),
            format!("SUB {dots} c\n"),
        ] {
            let Err(ParseError::Wire(error)) = parse(line.as_bytes(), context(&config, State::Init)) else {
                panic!("{line}")
            };
            assert_eq!(error.code, errors::E_BAD_TOPIC, "{line}");
        }
        assert!(super::topic(format!("{dots}#ephemeral").as_bytes()).is_some());
    }
}

#[test]
fn numbers_are_digits_only_and_wrap() {
    assert_eq!(number(b""), Some(0));
    assert_eq!(number(b"18446744073709551617"), Some(1));
    assert_eq!(number(b"+1"), None);
    assert_eq!(number(b"1.0"), None);
}

proptest! {
    #[test]
    fn any_split_of_a_stream_gives_the_same_commands(mut cuts in prop::collection::vec(0..STREAM.len(), 0..12)) {
        let config = Config::default();
        cuts.sort_unstable();
        prop_assert_eq!(commands(STREAM, &cuts, &config), commands(STREAM, &[], &config));
    }

    /// Whatever the bytes: a command, "more", or an error; never a panic.
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), command in 0..12usize) {
        let words = ["PUB t\n", "MPUB t\n", "DPUB t 1\n", "FIN ", "REQ ", "TOUCH ", "RDY ", "SUB ", "IDENTIFY\n", "AUTH\n", "NOP\n", "CLS\n"];
        let config = Config::default();
        for state in [State::Init, State::Subscribed, State::Closing] {
            let mut stream = words[command].as_bytes().to_vec();
            stream.extend_from_slice(&bytes);
            let _ = parse(&stream, context(&config, state));
            let _ = parse(&bytes, context(&config, state));
        }
    }
}
