//! A chunked body, decoded as it comes (RFC 9112, 7.1). Extensions and trailers are read and dropped.

use httparse::Status;

use crate::http::request::{MAX_HEAD, Malformed};
use crate::memory::SMALL_BYTES;

const MALFORMED: Malformed = Malformed { status: 400, rule: "the chunked body must be well-formed" };

#[derive(Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Size,
    Data(usize),
    /// The line end behind a chunk.
    End,
    Trailer,
    Over,
}

/// The state of a chunked body, and what of it has come.
#[derive(Debug, Default)]
pub struct Chunked {
    next: Next,
    overhead: usize, // bytes of trailers, and of extensions
    pub body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    Malformed(Malformed),
    TooBig,
}

impl Chunked {
    pub fn is_over(&self) -> bool {
        self.next == Next::Over
    }

    /// Decode `bytes` up to the end of the body, which may have `limit` bytes. Gives how many bytes that took.
    pub fn decode(&mut self, bytes: &[u8], limit: usize) -> Result<usize, Fault> {
        let mut at = 0;
        while self.next != Next::Over {
            let rest = &bytes[at..];
            if let Next::Data(left) = self.next {
                let len = left.min(rest.len());
                self.body.extend_from_slice(&rest[..len]);
                at += len;
                self.next = if len == left { Next::End } else { Next::Data(left - len) };
                if len == rest.len() {
                    break;
                }
                continue;
            }
            // Go's limit of a line between chunks, too.
            let Some(end) = rest.iter().take(SMALL_BYTES).position(|&c| c == b'\n') else {
                return if rest.len() >= SMALL_BYTES { Err(Fault::Malformed(MALFORMED)) } else { Ok(at) };
            };
            self.take_line(&rest[..=end], limit)?;
            at += end + 1;
        }
        Ok(at)
    }

    /// Take a line with its end, which must be CRLF: a proxy in front may not take a lone LF for an end.
    fn take_line(&mut self, line: &[u8], limit: usize) -> Result<(), Fault> {
        let text = line.strip_suffix(b"\r\n").ok_or(Fault::Malformed(MALFORMED))?;
        match self.next {
            Next::Size => {
                let (size, extension) = size(line).ok_or(Fault::Malformed(MALFORMED))?;
                self.overhead += extension;
                if size > (limit - self.body.len().min(limit)) as u64 {
                    return Err(Fault::TooBig);
                }
                self.next = if size == 0 { Next::Trailer } else { Next::Data(size as usize) };
            }
            Next::End if text.is_empty() => self.next = Next::Size,
            Next::Trailer if text.is_empty() => self.next = Next::Over,
            Next::Trailer => self.overhead += text.len(),
            _ => return Err(Fault::Malformed(MALFORMED)),
        }
        if self.overhead > MAX_HEAD { Err(Fault::Malformed(MALFORMED)) } else { Ok(()) }
    }
}

/// The size, in hexadecimal, and the length of the extension behind it.
fn size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|c| c.is_ascii_hexdigit()).count();
    match httparse::parse_chunk_size(line) {
        // The library takes no digits for 0, which would end the body.
        Ok(Status::Complete((_, size))) if (1..=15).contains(&digits) => {
            Some((size, line[digits..].trim_ascii().len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"3\r\nabc\r\n0A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn a_body_comes_out_whole_however_it_is_cut() {
        for step in 1..WHOLE.len() {
            let (mut chunked, mut kept, mut cut) = (Chunked::default(), Vec::new(), WHOLE.chunks(step));
            while !chunked.is_over() {
                kept.extend_from_slice(cut.next().expect("enough bytes"));
                let used = chunked.decode(&kept, 13).expect("well-formed");
                kept.drain(..used);
            }
            assert_eq!((chunked.body.as_slice(), kept.len(), cut.next()), (&b"abc0123456789"[..], 0, None), "{step}");
        }
    }

    #[test]
    fn chunks_without_extensions_may_be_many() {
        let bytes = [b"1 \r\nx\r\n".repeat(100_000), b"0\r\n\r\n".to_vec()].concat();
        let mut chunked = Chunked::default();
        assert_eq!((chunked.decode(&bytes, 1 << 20), chunked.body.len()), (Ok(bytes.len()), 100_000));
    }

    #[test]
    fn what_comes_behind_the_end_is_left_alone() {
        assert_eq!(Chunked::default().decode(b"0\r\n\r\nGET /", 0), Ok(5));
    }

    #[test]
    fn a_body_over_the_limit_is_refused_by_the_size_of_its_chunk() {
        assert_eq!(Chunked::default().decode(b"3\r\nabc\r\nb\r\n", 13), Err(Fault::TooBig));
        assert_eq!(Chunked::default().decode(b"fffffffffffffff\r\n", 13), Err(Fault::TooBig));
    }

    #[test]
    fn other_bytes_are_refused() {
        let endless = [b"1;".to_vec(), vec![b'x'; SMALL_BYTES]].concat();
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(20_000)].concat();
        let extended = b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(10_000);
        for bytes in [
            &b"\r\n"[..],
            b";a\r\n",
            b"1\n",
            b"1;a\nb\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"1\r\nab\r\n",
            b"1 2\r\n",
            b"0000000000000001\r\n",
            &endless,
            &trailers,
            &extended,
        ] {
            assert_eq!(Chunked::default().decode(bytes, 1 << 20), Err(Fault::Malformed(MALFORMED)));
        }
    }
}
