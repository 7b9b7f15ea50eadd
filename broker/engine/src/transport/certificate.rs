//! Two things out of an X.509 certificate, without judging it: its public key and its subject's common name.
//!
//! A server's own certificate may be expired, signed with SHA-1, or of version 1: that is for its clients to judge, so no validating parser is used here.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const OBJECT_ID: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03]; // 2.5.4.3

/// One DER element: its tag, its content, and all of it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// The first element of `input`, and what follows it.
fn element(input: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    let whole = &input[..input.len() - rest.len()];
    Some((Element { tag, content, whole }, rest))
}

fn elements(mut input: &[u8]) -> impl Iterator<Item = Element<'_>> {
    std::iter::from_fn(move || {
        let (first, rest) = element(input)?;
        input = rest;
        Some(first)
    })
}

/// Subject and public key.
fn parts(certificate: &[u8]) -> Option<(Element<'_>, Element<'_>)> {
    let (certificate, _) = element(certificate).filter(|(certificate, _)| certificate.tag == SEQUENCE)?;
    let (signed, _) = element(certificate.content).filter(|(signed, _)| signed.tag == SEQUENCE)?;
    // After the optional version: serial number, algorithm, issuer, validity, subject, public key.
    let mut fields = elements(signed.content).skip_while(|field| field.tag == VERSION).skip(4);
    let (subject, key) = (fields.next()?, fields.next()?);
    (subject.tag == SEQUENCE && key.tag == SEQUENCE).then_some((subject, key))
}

/// Its SubjectPublicKeyInfo, in DER; `None`: this is no certificate.
pub fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    parts(certificate).map(|(_, key)| key.whole)
}

/// The subject's common name; of several the last, as in Go.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let (subject, _) = parts(certificate)?;
    let attributes = elements(subject.content).flat_map(|set| elements(set.content));
    let names = attributes.filter_map(|attribute| {
        let (kind, rest) = element(attribute.content)?;
        let (value, _) = element(rest)?;
        (kind.tag == OBJECT_ID && kind.content == COMMON_NAME).then(|| text(&value))
    });
    names.last()
}

fn text(value: &Element<'_>) -> String {
    if value.tag == BMP_STRING {
        let units: Vec<u16> = value.content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value.content).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::testing;

    #[test]
    fn the_common_name_is_the_subjects() {
        assert_eq!(common_name(&testing::der(testing::CLIENT_CERT)), Some("client".into()));
    }

    #[test]
    fn the_key_of_a_certificate_is_found_whole() {
        let der = testing::der(testing::SERVER_CERT);
        let key = public_key(&der).expect("a certificate");
        assert_eq!(key.len(), 294, "2048-bit RSA");
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_gives_nothing_and_never_fails() {
        let der = testing::der(testing::SERVER_CERT);
        for len in 0..der.len().min(600) {
            assert_eq!(common_name(&der[..len]), None);
        }
        for byte in 0..der.len() {
            let mut broken = der.clone();
            broken[byte] ^= 0xff;
            let _ = (common_name(&broken), public_key(&broken));
        }
        assert_eq!(public_key(b"\x30\x84\xff\xff\xff\xff"), None);
    }
}
