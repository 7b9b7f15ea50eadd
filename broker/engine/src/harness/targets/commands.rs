//! Law: a stream gives the same commands, or the same error, however it is cut into reads; and a command takes at least
//! its line, at most what is there.

use crate::config::Config;
use crate::harness::source::Source;
use crate::protocol::codec::{Command, Context, ParseError, Seen, State, parse};

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let choice = source.byte();
    let state = [State::Init, State::Subscribed, State::Closing][usize::from(choice & 15) % 3];
    let config = if choice & 16 == 0 {
        Config::default()
    } else {
        Config { max_msg_size: 64, max_body_size: 256, max_rdy_count: 7, ..Config::default() }
    };
    let (heartbeats, needs_tls, asks_left) = (choice & 32 == 0, choice & 64 != 0, choice & 128 != 0);
    let context =
        Context { checked: false, seen: Seen::default(), state, heartbeats, needs_tls, asks_left, config: &config };
    let mut pieces = source;
    let mut whole = Reader::default();
    let stream = {
        source.number();
        source.rest()
    };
    whole.read(stream, stream.len(), context);
    let (mut cut, mut end) = (Reader::default(), 0);
    for piece in pieces.pieces() {
        end += piece.len();
        cut.read(stream, end, context);
    }
    assert_eq!((cut.commands, cut.error), (whole.commands, whole.error), "the cuts make a difference");
}

#[derive(Default)]
struct Reader<'a> {
    commands: Vec<Command<'a>>,
    error: Option<ParseError>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Run what is whole of `stream[..end]`.
    fn read(&mut self, stream: &'a [u8], end: usize, context: Context<'_>) {
        while self.error.is_none() {
            match parse(&stream[self.at..end], context) {
                Ok(Some((command, len))) => {
                    assert!(len > 0 && self.at + len <= end, "{command:?} takes {len} bytes");
                    check(&command, context.config);
                    self.commands.push(command);
                    self.at += len;
                }
                Ok(None) => return,
                Err(error) => self.error = Some(error),
            }
        }
    }
}

/// What the engine relies on without looking again.
fn check(command: &Command<'_>, config: &Config) {
    let fits = |body: &[u8]| !body.is_empty() && body.len() <= config.max_msg_size as usize;
    match command {
        Command::Pub { body, .. } | Command::Dpub { body, .. } => assert!(fits(body)),
        Command::Mpub { bodies, .. } => {
            assert!(bodies.count > 0 && bodies.to_owned().count() == bodies.count as usize);
            assert!(bodies.to_owned().all(fits));
        }
        Command::Identify(body) | Command::Auth(body) => {
            assert!(!body.is_empty() && body.len() <= config.max_body_size as usize)
        }
        Command::Rdy(count) => assert!(*count <= config.max_rdy_count),
        _ => {}
    }
}
