//! Lines that end in CR LF, as NATS and Redis have them.

use std::io;

use super::{LONGEST_LINE, broken};

/// The first line of `bytes` without its end, and its length with it; None: its end has not come.
pub fn line(bytes: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let within = &bytes[..bytes.len().min(LONGEST_LINE)];
    match within.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some((&bytes[..end - 1], end + 1))),
        Some(_) => Err(broken("a line that ends without a carriage return")),
        None if bytes.len() >= LONGEST_LINE => Err(broken(format!("a line of more than {LONGEST_LINE} bytes"))),
        None => Ok(None),
    }
}

/// `length` bytes and the line's end behind them, from `at` on; None: the end has not come.
pub fn block(bytes: &[u8], at: usize, length: usize) -> io::Result<Option<(&[u8], usize)>> {
    let end = at + length + 2;
    match bytes.get(at..end) {
        None => Ok(None),
        Some(block) => match block.strip_suffix(b"\r\n") {
            Some(data) => Ok(Some((data, end))),
            None => Err(broken(format!("{length} bytes that no line's end follows"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_when_its_end_is_there() {
        assert_eq!(line(b"PING").expect("no end yet"), None);
        assert_eq!(line(b"PING\r").expect("no end yet"), None);
        assert_eq!(line(b"PING\r\nPO").expect("whole"), Some((&b"PING"[..], 6)));
    }

    #[test]
    fn a_line_without_its_proper_end_is_an_error() {
        assert!(line(b"PING\n").is_err());
        assert!(line(b"\n").is_err());
        assert!(line(&[b'x'; LONGEST_LINE]).is_err());
        assert_eq!(line(&[b'x'; LONGEST_LINE - 1]).expect("it may end yet"), None);
    }

    #[test]
    fn a_block_ends_where_it_says() {
        assert_eq!(block(b"2\r\nab\r", 3, 2).expect("no end yet"), None);
        assert_eq!(block(b"2\r\nab\r\n", 3, 2).expect("whole"), Some((&b"ab"[..], 7)));
        assert!(block(b"2\r\nabcd", 3, 2).is_err());
    }
}
