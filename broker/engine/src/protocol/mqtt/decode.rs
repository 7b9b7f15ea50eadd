//! Bytes to packets: a fixed header, then what each type of packet has.
//!
//! `header` says how long a packet will be before any of it is kept, so that one that is too long never is. `decode`
//! takes a whole packet.

use crate::protocol::mqtt::field_reader::{Fields, variable};
use crate::protocol::mqtt::packet::{
    Ack, AckKind, Connect, Disconnect, Options, Packet, Publish, Qos, RetainHandling, Subscribe, Unsubscribe, Wanted,
    Will,
};
use crate::protocol::mqtt::property::{Carrier, Properties};
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::topic_filter::{Filter, is_name};
use crate::protocol::mqtt::version::Version;

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREC: u8 = 5;
const PUBREL: u8 = 6;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const UNSUBSCRIBE: u8 = 10;
const PING_REQUEST: u8 = 12;
const DISCONNECT: u8 = 14;

const RESERVED_FLAGS: &str = "the flags of this packet must be as the standard has them (section 2.1.3)";
const NOT_OF_A_CLIENT: Fault = Fault::protocol("no client may send a packet of this type");
const TOO_LONG: Fault = Fault::malformed("a packet is longer than its fields");

/// The front of a packet: its type and flags, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    first: u8,
    start: usize,   // of what follows the fixed header
    pub len: usize, // of the whole packet
}

impl Header {
    pub fn is_connect(self) -> bool {
        self.first >> 4 == CONNECT
    }

    /// Whether a packet with this first byte is a PUBLISH.
    pub fn is_publish(self) -> bool {
        self.first >> 4 == PUBLISH
    }
}

/// Reads the front of a packet from a client. `None`: more bytes are missing. `version`: of the connection, once it is
/// known. `most`: bytes that a packet may have.
pub fn header(bytes: &[u8], version: Option<Version>, most: usize) -> Result<Option<Header>, Fault> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    check_first(first)?;
    let Some((remaining, digits)) = variable(&bytes[1..])? else { return Ok(None) };
    if version == Some(Version::V5) && digits > 1 && bytes[digits] == 0 {
        return Err(Fault::malformed("a Remaining Length is longer than it must be [MQTT-1.5.5-1]"));
    }
    let start = 1 + digits;
    let len = start + remaining as usize;
    if len > most {
        return Err(Fault::new(
            Reason::PACKET_TOO_LARGE,
            "a packet is longer than the broker takes (section 3.1.2.11.4)",
        ));
    }
    Ok(Some(Header { first, start, len }))
}

/// Whether a client may send a packet that begins so. (The flags of a CONNECT count only from 3.1.1 on.)
fn check_first(first: u8) -> Result<(), Fault> {
    let (kind, flags) = (first >> 4, first & 15);
    match kind {
        CONNECT | PUBLISH => Ok(()),
        PUBACK | PUBREC | PUBCOMP | PING_REQUEST if flags == 0 => Ok(()),
        PUBREL | SUBSCRIBE | UNSUBSCRIBE if flags == 2 => Ok(()),
        DISCONNECT if flags == 0 => Ok(()),
        PUBREL | DISCONNECT => Err(Fault::protocol(RESERVED_FLAGS)),
        PUBACK | PUBREC | PUBCOMP | SUBSCRIBE | UNSUBSCRIBE | PING_REQUEST => Err(Fault::malformed(RESERVED_FLAGS)),
        _ if (9..=13).contains(&kind) && flags != 0 => Err(Fault::malformed(RESERVED_FLAGS)),
        _ => Err(NOT_OF_A_CLIENT), // AUTH is one, too: no authentication method is offered
    }
}

/// Reads a whole packet. `version`: of the connection; a CONNECT says it itself.
pub fn decode<'a>(bytes: &'a [u8], header: Header, version: Version) -> Result<Packet<'a>, Fault> {
    let mut fields = Fields::new(bytes.get(header.start..header.len).unwrap_or_default());
    let flags = header.first & 15;
    match header.first >> 4 {
        CONNECT => connect(fields, flags).map(|connect| Packet::Connect(Box::new(connect))),
        PUBLISH => publish(fields, flags, version).map(Packet::Publish),
        PUBACK => ack(fields, AckKind::Puback, version),
        PUBREC => ack(fields, AckKind::Pubrec, version),
        PUBREL => ack(fields, AckKind::Pubrel, version),
        PUBCOMP => ack(fields, AckKind::Pubcomp, version),
        SUBSCRIBE => subscribe(fields, version).map(Packet::Subscribe),
        UNSUBSCRIBE => unsubscribe(fields, version).map(Packet::Unsubscribe),
        PING_REQUEST => ended(fields).map(|()| Packet::PingRequest),
        DISCONNECT => disconnect(&mut fields, version).map(Packet::Disconnect),
        _ => Err(NOT_OF_A_CLIENT),
    }
}

fn ended(fields: Fields<'_>) -> Result<(), Fault> {
    if fields.is_empty() { Ok(()) } else { Err(TOO_LONG) }
}

fn properties<'a>(fields: &mut Fields<'a>, version: Version, carrier: Carrier) -> Result<Properties<'a>, Fault> {
    if version == Version::V5 { Properties::read(fields, carrier) } else { Ok(Properties::default()) }
}

fn packet_id(fields: &mut Fields<'_>, zero: Fault) -> Result<u16, Fault> {
    let id = fields.two()?;
    if id == 0 { Err(zero) } else { Ok(id) }
}

// ---- CONNECT -------------------------------------------------------------------------------------------------------

fn connect(mut fields: Fields<'_>, flags: u8) -> Result<Connect<'_>, Fault> {
    let (version, is_bridge) = version(&mut fields)?;
    if flags != 0 && version != Version::V3_1 {
        return Err(Fault::malformed(RESERVED_FLAGS));
    }
    connect_fields(fields, version, is_bridge).map_err(|fault| fault.in_version(version))
}

/// The version, and whether the client is a bridge.
fn version(fields: &mut Fields<'_>) -> Result<(Version, bool), Fault> {
    let (name, level) = (fields.binary()?, fields.byte()?);
    let unsupported = Fault::new(Reason::UNSUPPORTED_VERSION, "MQTT 3.1, 3.1.1 and 5.0 are spoken [MQTT-3.1.2-2]");
    match (name, level) {
        (b"MQIsdp", 3) => Ok((Version::V3_1, false)),
        (b"MQTT", 4) => Ok((Version::V3_1_1, false)),
        (b"MQTT", 5) => Ok((Version::V5, false)),
        // Mosquitto's bridges set the highest bit; those of 5.0 have No Local, and do not need it.
        (b"MQIsdp", 0x83) => Ok((Version::V3_1, true)),
        (b"MQTT", 0x84) => Ok((Version::V3_1_1, true)),
        (b"MQIsdp" | b"MQTT", 3..=5) => Err(unsupported.in_version(Version::V3_1_1)),
        (b"MQIsdp" | b"MQTT", _) => Err(unsupported.in_version(Version::V5)),
        _ => Err(Fault::malformed("the protocol's name must be MQTT or MQIsdp [MQTT-3.1.2-1]")),
    }
}

fn connect_fields(mut fields: Fields<'_>, version: Version, is_bridge: bool) -> Result<Connect<'_>, Fault> {
    let flags = fields.byte()?;
    let has = |bit: u8| flags & 1 << bit != 0;
    if has(0) && version != Version::V3_1 {
        return Err(Fault::malformed("the reserved flag of a CONNECT must be 0 [MQTT-3.1.2-3]"));
    }
    let keep_alive_s = fields.two()?;
    let properties = properties(&mut fields, version, Carrier::Connect)?;
    let client_id = fields.name().map_err(|fault| Fault { reason: Reason::CLIENT_ID_INVALID, ..fault })?;
    let will = will(&mut fields, flags, version)?;
    let username = has(7).then(|| fields.name()).transpose()?;
    let password = has(6).then(|| fields.binary()).transpose()?;
    if password.is_some() && username.is_none() && version != Version::V5 {
        return Err(Fault::malformed("a password needs a user name [MQTT-3.1.2-22 of 3.1.1]"));
    }
    ended(fields)?;
    let clean_start = has(1);
    Ok(Connect { version, is_bridge, clean_start, keep_alive_s, client_id, will, username, password, properties })
}

fn will<'a>(fields: &mut Fields<'a>, flags: u8, version: Version) -> Result<Option<Will<'a>>, Fault> {
    let retain = flags & 0x20 != 0;
    let qos = Qos::from_bits(flags >> 3).ok_or(Fault::malformed("a will's QoS must be 0 to 2 [MQTT-3.1.2-12]"))?;
    if flags & 4 == 0 {
        let none = !retain && qos == Qos::AtMostOnce;
        return if none { Ok(None) } else { Err(Fault::malformed("without a will it has no flags [MQTT-3.1.2-11]")) };
    }
    let properties = properties(fields, version, Carrier::Will)?;
    let topic = fields.name()?;
    if !is_name(topic) {
        return Err(Fault::new(Reason::TOPIC_NAME_INVALID, "a will's topic must be the name of one [MQTT-3.3.2-2]"));
    }
    Ok(Some(Will { qos, retain, topic, payload: fields.binary()?, properties }))
}

// ---- the others ----------------------------------------------------------------------------------------------------

fn publish(mut fields: Fields<'_>, flags: u8, version: Version) -> Result<Publish<'_>, Fault> {
    let (dup, retain) = (flags & 8 != 0, flags & 1 != 0);
    let qos = Qos::from_bits(flags >> 1).ok_or(Fault::malformed("a QoS must be 0 to 2 [MQTT-3.3.1-4]"))?;
    if dup && qos == Qos::AtMostOnce {
        return Err(Fault::malformed("a PUBLISH of QoS 0 must not have DUP [MQTT-3.3.1-2]"));
    }
    let topic = fields.name()?;
    let id = if qos == Qos::AtMostOnce { 0 } else { packet_id(&mut fields, ZERO_ID)? };
    let properties = properties(&mut fields, version, Carrier::Publish)?;
    let by_alias = topic.is_empty() && !properties.is_empty(); // which has to have an alias then
    if !by_alias && !is_name(topic) {
        return Err(Fault::malformed("a PUBLISH needs the name of a topic, without wildcards [MQTT-3.3.2-2]"));
    }
    Ok(Publish { dup, qos, retain, topic, id, properties, payload: fields.rest() })
}

const ZERO_ID: Fault = Fault::protocol("a packet identifier must not be 0 [MQTT-2.2.1-3]");
const ZERO_ID_OF_FILTERS: Fault = Fault::malformed("a packet identifier must not be 0 [MQTT-2.2.1-3]");

fn ack(mut fields: Fields<'_>, kind: AckKind, version: Version) -> Result<Packet<'_>, Fault> {
    let id = packet_id(&mut fields, ZERO_ID)?;
    let (mut reason, mut properties) = (Reason::SUCCESS, Properties::default());
    if version == Version::V5 && !fields.is_empty() {
        reason = Reason(fields.byte()?);
        if !answers(kind, reason) {
            return Err(Fault::protocol("a reason code does not belong to this packet (section 2.4)"));
        }
        if !fields.is_empty() {
            properties = Properties::read(&mut fields, Carrier::Ack)?;
        }
    }
    ended(fields)?;
    Ok(Packet::Ack(Ack { kind, id, reason, properties }))
}

/// Whether an acknowledgement may have this code (tables 3-4 to 3-7).
fn answers(kind: AckKind, reason: Reason) -> bool {
    match kind {
        AckKind::Puback | AckKind::Pubrec => {
            matches!(reason.0, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
        }
        AckKind::Pubrel | AckKind::Pubcomp => matches!(reason.0, 0x00 | 0x92),
    }
}

fn subscribe(mut fields: Fields<'_>, version: Version) -> Result<Subscribe<'_>, Fault> {
    let id = packet_id(&mut fields, ZERO_ID_OF_FILTERS)?;
    let properties = properties(&mut fields, version, Carrier::Subscribe)?;
    let filters = fields.rest();
    if filters.is_empty() {
        return Err(Fault::malformed("a SUBSCRIBE needs a filter [MQTT-3.8.3-2]"));
    }
    while !fields.is_empty() {
        wanted(&mut fields, version)?;
    }
    Ok(Subscribe { id, properties, version, filters })
}

impl<'a> Subscribe<'a> {
    /// Its filters, in order.
    pub fn filters(&self) -> impl Iterator<Item = Wanted<'a>> + use<'a> {
        let (mut fields, version) = (Fields::new(self.filters), self.version);
        std::iter::from_fn(move || wanted(&mut fields, version).ok())
    }
}

fn wanted<'a>(fields: &mut Fields<'a>, version: Version) -> Result<Wanted<'a>, Fault> {
    let filter = filter(fields)?;
    let bits = fields.byte()?;
    let reserved = if version == Version::V5 { 0xc0 } else { 0xfc };
    let malformed = Fault::malformed("the options of a subscription have a value that is reserved [MQTT-3.8.3-5]");
    if bits & reserved != 0 {
        return Err(malformed);
    }
    let retain_handling = match bits >> 4 {
        0 => RetainHandling::Always,
        1 => RetainHandling::IfNew,
        2 => RetainHandling::Never,
        _ => return Err(malformed),
    };
    let no_local = bits & 4 != 0;
    if no_local && filter.group.is_some() {
        return Err(Fault::protocol("a shared subscription must not have No Local [MQTT-3.8.3-4]"));
    }
    let qos = Qos::from_bits(bits).ok_or(malformed)?;
    Ok(Wanted { filter, options: Options { qos, no_local, retain_as_published: bits & 8 != 0, retain_handling } })
}

fn filter<'a>(fields: &mut Fields<'a>) -> Result<Filter<'a>, Fault> {
    Filter::parse(fields.name()?).ok_or(Fault::malformed("a topic filter breaks a rule of section 4.7.1"))
}

fn unsubscribe(mut fields: Fields<'_>, version: Version) -> Result<Unsubscribe<'_>, Fault> {
    let id = packet_id(&mut fields, ZERO_ID_OF_FILTERS)?;
    let properties = properties(&mut fields, version, Carrier::Unsubscribe)?;
    let filters = fields.rest();
    if filters.is_empty() {
        return Err(Fault::malformed("an UNSUBSCRIBE needs a filter [MQTT-3.10.3-2]"));
    }
    while !fields.is_empty() {
        filter(&mut fields)?;
    }
    Ok(Unsubscribe { id, properties, filters })
}

impl<'a> Unsubscribe<'a> {
    /// Its filters, in order.
    pub fn filters(&self) -> impl Iterator<Item = Filter<'a>> + use<'a> {
        let mut fields = Fields::new(self.filters);
        std::iter::from_fn(move || filter(&mut fields).ok())
    }
}

fn disconnect<'a>(fields: &mut Fields<'a>, version: Version) -> Result<Disconnect<'a>, Fault> {
    let (mut reason, mut properties) = (Reason::SUCCESS, Properties::default());
    if version == Version::V5 && !fields.is_empty() {
        reason = Reason(fields.byte()?);
        if !matches!(reason.0, 0x00 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99) {
            return Err(Fault::protocol("a client must not send a DISCONNECT of this reason code (table 3-13)"));
        }
        if !fields.is_empty() {
            properties = Properties::read(fields, Carrier::Disconnect)?;
        }
    }
    ended(*fields)?;
    Ok(Disconnect { reason, properties })
}
