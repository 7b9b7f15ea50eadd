//! Law: a stream of requests gets the same answers, and hands the same requests on, however it is cut into reads; what
//! is kept of it is bounded, and given back at the end.

use crate::config::Config;
use crate::harness::pair::Pair;
use crate::harness::source::Source;
use crate::http::Handed;
use crate::http::answer::Answer;

/// Bytes of one request that Python may have, or of its answer: a head and a body.
const KEPT: u64 = 2 * (64 << 10);

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let token = if source.flag() { "s3cret" } else { "" };
    let (mut pieces, _) = (source, source.number());
    // A head is looked at again only when it has a line more: the last one gets that.
    let whole = serve(token, [source.rest(), b"\n"].into_iter());
    let cut = serve(token, pieces.pieces().chain([&b"\n"[..]]));
    assert_eq!(cut, whole, "the cuts make a difference");
}

fn serve<'a>(token: &str, reads: impl Iterator<Item = &'a [u8]>) -> (String, Vec<Handed>) {
    let config = Config { http_token: token.into(), max_msg_size: 512, max_body_size: 4_096, ..Config::default() };
    let mut pair = Pair::with(config);
    let key = pair.connect_http();
    let mut handed = Vec::new();
    for bytes in reads {
        pair.send(key, bytes);
        loop {
            pair.turn();
            let asked = pair.engine.poll_handed();
            for request in &asked {
                let answer =
                    Answer { status: 200, content_type: "text/plain", headers: &[], body: request.target.as_bytes() };
                pair.engine.respond(request.id, &answer, pair.now);
            }
            if asked.is_empty() {
                break;
            }
            handed.extend(asked);
        }
        assert!(pair.engine.http.held.used() <= KEPT, "{} bytes are kept", pair.engine.http.held.used());
    }
    pair.engine.handle_eof(key);
    pair.turn();
    pair.close(key);
    assert_eq!(pair.engine.http.held.used(), 0);
    (pair.take_text(key).replace(CONTINUE, ""), handed)
}
