//! A message on its way to subscribers: whom it goes to, and its bytes in each form that they need.

use crate::keys::{GroupKey, SessionKey, TallyKey};
use crate::mqtt::filter_trie::Subscriber;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::encode::{self, PublishHead, Written};
use crate::protocol::mqtt::packet::Qos;
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::version::Version;
use crate::queueing::message::Message;

/// Buffers for the message that goes to its subscribers, used again and again.
#[derive(Debug, Default)]
pub struct Fan {
    pub found: Vec<Subscriber>,
    pub targets: Vec<Target>,
    pub groups: Vec<GroupKey>,
    pub forms: Forms,
    pub attributes: Vec<u8>,
    pub number: u64,          // of the message
    pub unheard: bool,        // it was released, and nobody wanted it
    pub went_to: Option<u32>, // sessions and groups; None: it was not released
    pub tally: TallyKey,      // of its topic
    /// Its topic at another broker, which it came from, and which tells of what it retains by itself.
    pub linked: Option<Box<str>>,
}

/// A session that a message goes to, with what its subscriptions say together.
#[derive(Debug, Clone)]
pub struct Target {
    pub session: SessionKey,
    pub qos: Qos,
    pub retain: bool,
    pub ids: Vec<u32>,           // Subscription Identifiers; most have none, and allocate nothing
    pub group: Option<GroupKey>, // whose message it is
    pub topic: TallyKey,         // that it counts for
}

/// The name of a topic as a client is told it: with an alias from now on, or by an alias alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    pub number: u16,
    pub is_known: bool,
}

/// What subscribers get of a message besides its payload.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    pub origin: u64,
    pub name: &'a str,
    pub group: &'a str, // that it is for alone; "": for all
    pub qos: Qos,       // the highest under which it may go on
    pub retain: bool,
    pub properties: &'a [u8],
    pub left_s: u32, // u32::MAX: it does not expire
}

impl<'a> Heading<'a> {
    /// `None`: the message has expired. `topic`: the name of a message that came by NSQ.
    pub fn of(message: &'a Message, topic: &'a str, wall_ns: i64) -> Option<Self> {
        let Some(attributes) = Attributes::decode(message.attributes()) else {
            let (qos, properties) = (Qos::ExactlyOnce, &[][..]);
            return Some(Self { origin: 0, name: topic, group: "", qos, retain: false, properties, left_s: u32::MAX });
        };
        let left_s = attributes.left_s(wall_ns)?;
        let Attributes { origin, qos, retain, name, group, properties, .. } = attributes;
        Some(Self { origin, name, group, qos, retain, properties, left_s })
    }
}

/// Forms of one message: the bytes of each, once they were needed.
#[derive(Debug, Default)]
pub struct Forms {
    bytes: Vec<u8>,
    made: Vec<(Version, Qos, bool, Form)>,
}

/// Where the bytes of a form are, and where in them its packet identifier.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    start: usize,
    end: usize,
    id_at: usize,
}

/// What a form has that no other delivery shares.
#[derive(Debug, Default, Clone, Copy)]
pub struct Once {
    pub dup: bool,
    pub alias: Option<Alias>,
}

impl Forms {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.made.clear();
    }

    /// The bytes for a target, which may be shared, and where its packet identifier goes.
    pub fn get(&mut self, version: Version, heading: &Heading<'_>, target: &Target, payload: &[u8]) -> (&[u8], usize) {
        let version = version.max(Version::V3_1_1); // 3.1 has the same form
        let shared = target.ids.is_empty() || version != Version::V5;
        let known = self
            .made
            .iter()
            .find(|(v, qos, retain, _)| shared && (*v, *qos, *retain) == (version, target.qos, target.retain))
            .map(|(.., form)| *form);
        let form = known.unwrap_or_else(|| {
            let form = self.make(version, heading, target, payload, Once::default());
            if shared {
                self.made.push((version, target.qos, target.retain, form));
            }
            form
        });
        (&self.bytes[form.start..form.end], form.id_at)
    }

    pub fn make(
        &mut self,
        version: Version,
        heading: &Heading<'_>,
        target: &Target,
        payload: &[u8],
        once: Once,
    ) -> Form {
        let mut properties = Written::default();
        if version == Version::V5 {
            if heading.left_s < u32::MAX {
                properties.four(property::MESSAGE_EXPIRY, heading.left_s);
            }
            properties.raw(heading.properties);
            once.alias.iter().for_each(|alias| _ = properties.two(property::TOPIC_ALIAS, alias.number));
            target.ids.iter().for_each(|id| _ = properties.variable(property::SUBSCRIPTION_ID, *id));
        }
        let head = PublishHead {
            dup: once.dup,
            qos: target.qos,
            retain: target.retain,
            topic: if once.alias.is_some_and(|alias| alias.is_known) { "" } else { heading.name },
            id: 0,
            properties: properties.bytes(),
        };
        let start = self.bytes.len();
        let id_at = encode::publish(&mut self.bytes, version, head, payload) - start;
        Form { start, end: self.bytes.len(), id_at }
    }

    pub fn bytes(&self, form: Form) -> (&[u8], usize) {
        (&self.bytes[form.start..form.end], form.id_at)
    }
}
