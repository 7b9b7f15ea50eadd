//! The Date header, made anew once a second.

use std::io::Write;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // of 1970-01-01 and after
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[derive(Debug)]
pub struct Date {
    second: i64,
    text: Vec<u8>,
}

impl Date {
    /// `second`: unix time.
    pub fn at(second: i64) -> Self {
        let mut date = Self { second: second.wrapping_add(1), text: Vec::new() };
        date.set(second);
        date
    }

    pub fn set(&mut self, second: i64) {
        if second == self.second {
            return;
        }
        self.second = second;
        self.text.clear();
        let (days, time) = (second.div_euclid(86_400), second.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        // Writing into memory cannot fail.
        let _ = write!(self.text, "{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT");
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let since_0000_03 = days + 719_468;
    let era = since_0000_03.div_euclid(146_097);
    let day_of_era = since_0000_03.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
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
}
