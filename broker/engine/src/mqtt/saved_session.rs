//! A session as it stands on disk.
//!
//! `version(1) kind(1) client_id queue(8) since(8) expiry(4) ends(8) will subscriptions received`; strings and lists
//! have their length in front. Integers are big-endian. Version 1 has no `since`.

use crate::keys::SessionKey;
use crate::mqtt::session::Received;
use crate::mqtt::will::Will;
use crate::protocol::mqtt::field_reader::Fields;
use crate::protocol::mqtt::packet::{Options, Qos, RetainHandling};
use crate::protocol::mqtt::reason::Fault;
use crate::time::Nanos;

const VERSION: u8 = 2;
const LIVES: u8 = 1;
const ENDED: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSession {
    pub client_id: String,
    pub queue: u64,         // number of its queue's files
    pub since_wall_ns: i64, // when its client came; 0: not known
    pub expiry_s: u32,
    pub ends_wall_ns: i64, // 0: it had a connection
    pub will: Option<Will>,
    pub subscriptions: Vec<SavedSubscription>,
    pub received: Vec<(u16, Received)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSubscription {
    pub filter: String,
    pub id: u32,
    pub options: Options,
}

/// A record of a session: its state, or that the session of this client has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    Lives(SavedSession),
    Ended(String),
}

impl Saved {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Ended(client_id) => {
                out.push(ENDED);
                text(&mut out, client_id);
            }
            Self::Lives(session) => {
                out.push(LIVES);
                text(&mut out, &session.client_id);
                out.extend_from_slice(&session.queue.to_be_bytes());
                out.extend_from_slice(&session.since_wall_ns.to_be_bytes());
                out.extend_from_slice(&session.expiry_s.to_be_bytes());
                out.extend_from_slice(&session.ends_wall_ns.to_be_bytes());
                will(&mut out, session.will.as_ref());
                out.extend_from_slice(&(session.subscriptions.len() as u32).to_be_bytes());
                for SavedSubscription { filter, id, options } in &session.subscriptions {
                    out.push(options_byte(*options));
                    out.extend_from_slice(&id.to_be_bytes());
                    text(&mut out, filter);
                }
                out.extend_from_slice(&(session.received.len() as u32).to_be_bytes());
                for (id, Received { digest, .. }) in &session.received {
                    out.extend_from_slice(&id.to_be_bytes());
                    out.extend_from_slice(&digest.to_be_bytes());
                }
            }
        }
        out
    }

    /// `None`: it is of another version, or none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        read(&mut fields).ok().flatten().filter(|_| fields.is_empty())
    }
}

/// How far the writing anew of all objects has come.
#[derive(Debug, Default)]
pub enum Renewal {
    #[default]
    Idle,
    /// Retained messages, behind this name, then sessions. The journal had so many bytes when it began.
    Retained(Box<str>, u64),
    Sessions(Vec<SessionKey>, u64),
}
fn read(fields: &mut Fields<'_>) -> Result<Option<Saved>, Fault> {
    let version = fields.byte()?;
    if !(1..=VERSION).contains(&version) {
        return Ok(None);
    }
    let kind = fields.byte()?;
    let client_id = fields.text()?.to_owned();
    if kind == ENDED {
        return Ok(Some(Saved::Ended(client_id)));
    }
    let queue = eight(fields)?;
    let since_wall_ns = if version == 1 { 0 } else { eight(fields)? as i64 };
    let (expiry_s, ends_wall_ns) = (fields.four()?, eight(fields)? as i64);
    let will = read_will(fields)?;
    let mut subscriptions = Vec::new();
    for _ in 0..fields.four()? {
        let (options, id) = (options_of(fields.byte()?), fields.four()?);
        subscriptions.push(SavedSubscription { filter: fields.text()?.to_owned(), id, options });
    }
    let mut received = Vec::new();
    for _ in 0..fields.four()? {
        received.push((fields.two()?, Received { digest: eight(fields)?, repeats: 0 }));
    }
    let session =
        SavedSession { client_id, queue, since_wall_ns, expiry_s, ends_wall_ns, will, subscriptions, received };
    Ok((kind == LIVES).then_some(Saved::Lives(session)))
}

pub(crate) fn eight(fields: &mut Fields<'_>) -> Result<u64, Fault> {
    Ok(u64::from(fields.four()?) << 32 | u64::from(fields.four()?))
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn will(out: &mut Vec<u8>, will: Option<&Will>) {
    let Some(will) = will else { return out.push(0) };
    out.push(1);
    text(out, &will.topic);
    out.push(will.qos as u8 | u8::from(will.retain) << 2 | u8::from(will.expiry_s.is_some()) << 3);
    out.extend_from_slice(&will.delay_s.to_be_bytes());
    out.extend_from_slice(&will.expiry_s.unwrap_or(0).to_be_bytes());
    long(out, &will.payload);
    long(out, &will.properties);
}

fn read_will(fields: &mut Fields<'_>) -> Result<Option<Will>, Fault> {
    if fields.byte()? == 0 {
        return Ok(None);
    }
    let topic = fields.text()?.into();
    let flags = fields.byte()?;
    let (delay_s, expiry_s) = (fields.four()?, fields.four()?);
    let mut long = || -> Result<Box<[u8]>, Fault> {
        let len = fields.four()?;
        Ok(fields.take(len as usize)?.into())
    };
    Ok(Some(Will {
        topic,
        payload: long()?,
        qos: Qos::from_bits(flags).unwrap_or_default(),
        retain: flags & 4 != 0,
        delay_s,
        expiry_s: (flags & 8 != 0).then_some(expiry_s),
        properties: long()?,
        due_at: Nanos::MAX,
    }))
}

fn options_byte(options: Options) -> u8 {
    let flags = u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3;
    options.qos as u8 | flags | (options.retain_handling as u8) << 4
}

fn options_of(byte: u8) -> Options {
    let retain_handling = match byte >> 4 {
        1 => RetainHandling::IfNew,
        2 => RetainHandling::Never,
        _ => RetainHandling::Always,
    };
    Options {
        qos: Qos::from_bits(byte).unwrap_or_default(),
        no_local: byte & 4 != 0,
        retain_as_published: byte & 8 != 0,
        retain_handling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_comes_back_as_it_was_and_no_part_of_one_does() {
        let will = Will {
            topic: "dead".into(),
            payload: [1, 0].into(),
            qos: Qos::AtLeastOnce,
            retain: true,
            delay_s: 5,
            expiry_s: Some(0),
            properties: [3, 0, 0].into(),
            due_at: Nanos::MAX,
        };
        let options = Options {
            qos: Qos::ExactlyOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::Never,
        };
        let session = SavedSession {
            client_id: "client".into(),
            queue: u64::MAX,
            since_wall_ns: 5,
            expiry_s: 60,
            ends_wall_ns: -1,
            will: Some(will),
            subscriptions: vec![SavedSubscription { filter: "$share/g/a/+".into(), id: 9, options }],
            received: vec![(7, Received { digest: 8, repeats: 0 })],
        };
        for saved in [Saved::Lives(session), Saved::Ended("client".into())] {
            let bytes = saved.encode();
            assert_eq!(Saved::decode(&bytes), Some(saved));
            for len in 0..bytes.len() {
                assert_eq!(Saved::decode(&bytes[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn a_session_of_version_1_does_not_say_since_when_its_client_is_there() {
        let bytes = [&[1, LIVES, 0, 1, b'c'], &[0; 8][..], &60_u32.to_be_bytes(), &[0; 17]].concat();
        let Some(Saved::Lives(saved)) = Saved::decode(&bytes) else { panic!("it is read") };
        assert_eq!((saved.client_id.as_str(), saved.since_wall_ns, saved.expiry_s), ("c", 0, 60));
    }
}
