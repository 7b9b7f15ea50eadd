//! A body with one message per line, empty lines excepted, counted while it comes in. Counting 5 MB at once would hold
//! up all others for about 1 ms.

use crate::protocol::codec::Bodies;

/// The lines that have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LineBody {
    seen: usize, // bytes of the body
    at: usize,   // where the line begins of which no end was seen
    count: u32,  // messages before
    longest: usize,
}

impl LineBody {
    /// Count the complete lines of `body`, which begins with the bytes of the last call.
    pub fn look(&mut self, body: &[u8]) {
        let Some(end) = body[self.seen..].iter().rposition(|&c| c == b'\n') else {
            self.seen = body.len();
            return;
        };
        let end = self.seen + end + 1;
        *self = Self { seen: body.len(), at: end, ..self.with(&body[self.at..end]) };
    }

    /// The messages of the whole `body`, and the bytes of the longest.
    pub fn whole(self, body: &[u8]) -> (u32, usize) {
        let all = self.with(body.get(self.at..).unwrap_or_default());
        (all.count, all.longest)
    }

    fn with(self, lines: &[u8]) -> Self {
        Bodies::lines(u32::MAX, lines).fold(self, |all, line| Self {
            count: all.count + 1,
            longest: all.longest.max(line.len()),
            ..all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_as_many_messages_however_it_comes() {
        let bodies: [&[u8]; 8] = [
            b"",
            b"\n",
            b"\n\n\n",
            b"a",
            b"a\n",
            b"\na\n\nbcd\n",
            b"ab\ncd\n\n\nefghij\nk",
            b"no end for a long while\n\nx",
        ];
        for body in bodies {
            let whole = LineBody::default().whole(body);
            let lines = body.split(|&c| c == b'\n').filter(|line| !line.is_empty());
            assert_eq!(whole, (lines.clone().count() as u32, lines.map(<[u8]>::len).max().unwrap_or(0)), "{body:?}");
            for step in 1..=body.len() {
                for last in 0..=body.len() {
                    let mut lines = LineBody::default();
                    (0..=last).step_by(step).for_each(|end| lines.look(&body[..end]));
                    assert_eq!(lines.whole(body), whole, "{body:?} by {step} up to {last}");
                }
            }
        }
    }
}
