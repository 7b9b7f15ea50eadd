//! The query string by Go's net/url rules: the first value of a name counts; a `;` or a broken escape spoils all.

use std::borrow::Cow;

#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

/// The first value of each of `names`, in their order.
pub fn arguments<'a, const N: usize>(query: &'a str, names: [&str; N]) -> Result<[Option<Cow<'a, str>>; N], Broken> {
    let mut found = [const { None }; N];
    for part in query.split('&') {
        if part.contains(';') {
            return Err(Broken);
        }
        if part.is_empty() {
            continue;
        }
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if let Some(index) = names.iter().position(|known| *known == name) {
            found[index].get_or_insert(value);
        }
    }
    Ok(found)
}

/// Decode `%XX` and `+`. Bytes that are not UTF-8 are refused.
fn decoded(text: &str) -> Result<Cow<'_, str>, Broken> {
    if !text.bytes().any(|c| matches!(c, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(c) = rest.next() {
        bytes.push(match c {
            b'+' => b' ',
            b'%' => hex(rest.next())? << 4 | hex(rest.next())?,
            other => other,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Broken)
}

fn hex(c: Option<u8>) -> Result<u8, Broken> {
    c.and_then(|c| char::from(c).to_digit(16)).map(|digit| digit as u8).ok_or(Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(query: &str) -> Result<Option<String>, Broken> {
        arguments(query, ["topic"]).map(|[topic]| topic.map(Cow::into_owned))
    }

    #[test]
    fn the_first_value_wins_and_escapes_are_undone() {
        assert_eq!(topic("a=1&topic=x&topic=y"), Ok(Some("x".into())));
        assert_eq!(topic("t%6Fpic=a%23+b"), Ok(Some("a# b".into())));
        assert_eq!(topic("&&topic"), Ok(Some(String::new())));
        assert_eq!(topic("topics=x"), Ok(None));
    }

    #[test]
    fn a_broken_part_spoils_the_whole() {
        for query in ["topic=%zz", "topic=x&a=%", "a;b&topic=x", "topic=%ff", "%4&topic=x", "topic=%+1"] {
            assert_eq!(topic(query), Err(Broken), "{query}");
        }
    }
}
