//! The Date header, made once a second.

use std::time::{Duration, SystemTime};

/// The last second of the year 9999 (unix time): the format has no later one.
const LAST_SECOND: i64 = 253_402_300_799;

#[derive(Debug)]
pub struct Date {
    second: i64,
    text: String,
}

impl Date {
    /// `second`: unix time.
    pub fn at(second: i64) -> Self {
        Self { second, text: text(second) }
    }

    pub fn set(&mut self, second: i64) {
        if second != self.second {
            *self = Self::at(second);
        }
    }

    pub fn text(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// A clock outside of 1970 to 9999 gives the nearest date that the format has.
fn text(second: i64) -> String {
    let since_1970 = Duration::from_secs(second.clamp(0, LAST_SECOND).unsigned_abs());
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years_and_centuries() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(String::from_utf8_lossy(Date::at(second).text()), text);
        }
    }

    #[test]
    fn it_follows_the_clock() {
        let mut date = Date::at(5);
        date.set(6);
        assert_eq!(date.text(), b"Thu, 01 Jan 1970 00:00:06 GMT");
    }

    #[test]
    fn a_clock_outside_the_format_gives_the_nearest_date() {
        assert_eq!(Date::at(i64::MIN).text(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(Date::at(i64::MAX).text(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
