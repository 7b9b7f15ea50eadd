//! The common name of a certificate's subject, and its public key, read without judging the certificate.
//!
//! A server's own certificate may be expired, signed with SHA-1, or of version 1. Its clients judge that, so no
//! validating parser is used here. An element in DER is a tag, a length, and as many bytes of content:
//!
//! ```text
//! Certificate  30 len
//!   signed     30 len
//!     version  a0 len ..                        optional
//!     serial number, algorithm, issuer, validity
//!     subject  30 len
//!       set    31 len
//!         attribute  30 len
//!           kind     06 03 55 04 03             2.5.4.3, the common name
//!           value    0c 06 63 6c 69 65 6e 74    "client" (0c UTF-8, 13 printable, 1e two-byte)
//!     public key 30 len ..
//! ```

/// Tags of DER elements.
mod tag {
    pub const OBJECT_ID: u8 = 0x06;
    pub const BMP_STRING: u8 = 0x1e; // two bytes a character
    pub const SEQUENCE: u8 = 0x30;
    pub const VERSION: u8 = 0xa0;
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

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

/// The subject and the public key.
fn parts(certificate: &[u8]) -> Option<(Element<'_>, Element<'_>)> {
    let (certificate, _) = element(certificate).filter(|(certificate, _)| certificate.tag == tag::SEQUENCE)?;
    let (signed, _) = element(certificate.content).filter(|(signed, _)| signed.tag == tag::SEQUENCE)?;
    // After the optional version: serial number, algorithm, issuer, validity, subject, public key.
    let mut fields = elements(signed.content).skip_while(|field| field.tag == tag::VERSION).skip(4);
    let (subject, key) = (fields.next()?, fields.next()?);
    (subject.tag == tag::SEQUENCE && key.tag == tag::SEQUENCE).then_some((subject, key))
}

/// The SubjectPublicKeyInfo, in DER; `None`: this is no certificate.
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
        (kind.tag == tag::OBJECT_ID && kind.content == COMMON_NAME).then(|| text(&value))
    });
    names.last()
}

fn text(value: &Element<'_>) -> String {
    if value.tag == tag::BMP_STRING {
        let units: Vec<u16> =
            value.content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
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
