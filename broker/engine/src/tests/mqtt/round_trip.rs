//! Law: packets of `mqtt-protocol-core` are read as it wrote them, and it reads ours as they are meant.

use mqtt_protocol_core::mqtt::Arc;
use mqtt_protocol_core::mqtt::packet::{
    MessageExpiryInterval, PayloadFormat, PayloadFormatIndicator, Properties as TheirProperties, Property,
    Qos as TheirQos, RetainHandling as TheirRetainHandling, SubEntry, SubOpts, SubscriptionIdentifier, TopicAlias,
    UserProperty, v3_1_1, v5_0,
};
use proptest::prelude::*;

use crate::protocol::mqtt::decode::{decode, header};
use crate::protocol::mqtt::encode::{self, PublishHead, Written};
use crate::protocol::mqtt::packet::{AckKind, Packet, Qos, RetainHandling};
use crate::protocol::mqtt::property::{self, Properties, Value};
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::mqtt::version::Version;

const LONGEST: usize = 1 << 20;

fn read(bytes: &[u8], version: Version) -> Packet<'_> {
    let header = header(bytes, Some(version), LONGEST).expect("a front").expect("a whole one");
    assert_eq!(header.len, bytes.len());
    decode(bytes, header, version).unwrap_or_else(|fault| panic!("{bytes:02x?}: {fault:?}"))
}

/// What follows a fixed header.
fn body(bytes: &[u8]) -> &[u8] {
    let digits = bytes[1..].iter().position(|byte| byte & 0x80 == 0).expect("a length") + 1;
    &bytes[1 + digits..]
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)]
}

fn theirs(qos: Qos) -> TheirQos {
    match qos {
        Qos::AtMostOnce => TheirQos::AtMostOnce,
        Qos::AtLeastOnce => TheirQos::AtLeastOnce,
        Qos::ExactlyOnce => TheirQos::ExactlyOnce,
    }
}

const NAME: &str = "[a-zä€/]{1,40}";

proptest! {
    #[test]
    fn a_publish_of_theirs_is_read_as_it_was_meant(
        topic in NAME, qos in qos(), (dup, retain) in any::<(bool, bool)>(), id in 1..=u16::MAX,
        payload in prop::collection::vec(any::<u8>(), 0..300), expiry in any::<u32>(), alias in 1..=u16::MAX,
        users in prop::collection::vec(("[a-z]{0,9}", "[a-z]{0,9}"), 0..4), is_text in any::<bool>(),
    ) {
        let dup = dup && qos != Qos::AtMostOnce;
        let format = if is_text { PayloadFormat::String } else { PayloadFormat::Binary };
        let mut properties: TheirProperties = vec![
            Property::PayloadFormatIndicator(PayloadFormatIndicator::new(format).expect("a format")),
            Property::MessageExpiryInterval(MessageExpiryInterval::new(expiry).expect("a span")),
            Property::TopicAlias(TopicAlias::new(alias).expect("an alias")),
        ];
        properties.extend(users.iter().map(|(key, value)| {
            Property::UserProperty(UserProperty::new(key.as_str(), value.as_str()).expect("a pair"))
        }));
        let builder = v5_0::Publish::builder().topic_name(topic.as_str()).expect("a name").qos(theirs(qos)).retain(retain)
            .dup(dup).props(properties).payload(payload.clone());
        let builder = if qos == Qos::AtMostOnce { builder } else { builder.packet_id(id) };
        let bytes = builder.build().expect("a packet").to_continuous_buffer();
        let Packet::Publish(publish) = read(&bytes, Version::V5) else { panic!("a PUBLISH") };
        prop_assert_eq!((publish.topic, publish.qos, publish.retain, publish.dup), (topic.as_str(), qos, retain, dup));
        prop_assert_eq!(publish.id, if qos == Qos::AtMostOnce { 0 } else { id });
        prop_assert_eq!(publish.payload, payload.as_slice());
        prop_assert_eq!(publish.properties.number(property::MESSAGE_EXPIRY), Some(expiry));
        prop_assert_eq!(publish.properties.number(property::TOPIC_ALIAS), Some(u32::from(alias)));
        prop_assert_eq!(publish.properties.number(property::PAYLOAD_FORMAT), Some(u32::from(is_text)));
        let pairs: Vec<(&str, &str)> = publish.properties.iter().filter_map(|(_, value)| match value {
            Value::Pair(key, value) => Some((key, value)),
            _ => None,
        }).collect();
        prop_assert_eq!(pairs, users.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    }

    #[test]
    fn a_publish_of_ours_is_theirs(
        topic in NAME, qos in qos(), (dup, retain) in any::<(bool, bool)>(), id in 1..=u16::MAX,
        payload in prop::collection::vec(any::<u8>(), 0..300), expiry in any::<u32>(), subscription in 1..0x0fff_ffff_u32,
    ) {
        let dup = dup && qos != Qos::AtMostOnce;
        let mut properties = Written::default();
        properties.four(property::MESSAGE_EXPIRY, expiry).variable(property::SUBSCRIPTION_ID, subscription).user("k", "v");
        let head = PublishHead { dup, qos, retain, topic: &topic, id, properties: properties.bytes() };
        let mut bytes = Vec::new();
        encode::publish(&mut bytes, Version::V5, head, &payload);
        let (parsed, used) = v5_0::Publish::parse(bytes[0] & 15, Arc::from(body(&bytes))).expect("theirs");
        prop_assert_eq!(used, body(&bytes).len());
        prop_assert_eq!(parsed.to_continuous_buffer(), bytes);
        prop_assert_eq!((parsed.topic_name(), parsed.retain(), parsed.dup()), (topic.as_str(), retain, dup));
        prop_assert_eq!(parsed.payload().as_slice(), payload.as_slice());

        let mut old = Vec::new();
        encode::publish(&mut old, Version::V3_1_1, head, &payload);
        let (parsed, _) = v3_1_1::Publish::parse(old[0] & 15, Arc::from(body(&old))).expect("theirs");
        prop_assert_eq!(parsed.to_continuous_buffer(), old);
    }

    #[test]
    fn a_subscribe_of_theirs_is_read_as_it_was_meant(
        id in 1..=u16::MAX, entries in prop::collection::vec((NAME, qos(), any::<(bool, bool)>(), 0..3_u8), 1..6),
        subscription in 1..0x0fff_ffff_u32,
    ) {
        let handling = [TheirRetainHandling::SendRetained, TheirRetainHandling::SendRetainedIfNotExists, TheirRetainHandling::DoNotSendRetained];
        let wanted = entries.iter().map(|(filter, qos, (local, published), retain)| {
            let options = SubOpts::new().set_qos(theirs(*qos)).set_nl(*local).set_rap(*published)
                .set_rh(handling[usize::from(*retain)]);
            SubEntry::new(filter.as_str(), options).expect("an entry")
        }).collect::<Vec<_>>();
        let properties = vec![Property::SubscriptionIdentifier(SubscriptionIdentifier::new(subscription).expect("an id"))];
        let bytes = v5_0::Subscribe::builder().packet_id(id).entries(wanted).props(properties).build().expect("a packet")
            .to_continuous_buffer();
        let Packet::Subscribe(subscribe) = read(&bytes, Version::V5) else { panic!("a SUBSCRIBE") };
        prop_assert_eq!((subscribe.id, subscribe.properties.number(property::SUBSCRIPTION_ID)), (id, Some(subscription)));
        let read: Vec<_> = subscribe.filters().map(|wanted| {
            let options = wanted.options;
            let retain = match options.retain_handling {
                RetainHandling::Always => 0,
                RetainHandling::IfNew => 1,
                RetainHandling::Never => 2,
            };
            (wanted.filter.pattern.to_owned(), options.qos, (options.no_local, options.retain_as_published), retain)
        }).collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn acknowledgements_go_both_ways(id in 1..=u16::MAX, kind in 0..4_usize, refused in any::<bool>(), text in "[a-z]{0,20}") {
        let kind = [AckKind::Puback, AckKind::Pubrec, AckKind::Pubrel, AckKind::Pubcomp][kind];
        let refusal = if matches!(kind, AckKind::Puback | AckKind::Pubrec) { Reason::QUOTA_EXCEEDED } else { Reason::PACKET_ID_NOT_FOUND };
        let reason = if refused { refusal } else { Reason::SUCCESS };
        let mut properties = Written::default();
        if !text.is_empty() {
            properties.text(property::REASON_STRING, &text);
        }
        let mut bytes = Vec::new();
        encode::ack(&mut bytes, Version::V5, kind, id, reason, &properties);
        let again = match kind {
            AckKind::Puback => v5_0::Puback::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(),
            AckKind::Pubrec => v5_0::Pubrec::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(),
            AckKind::Pubrel => v5_0::Pubrel::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(),
            AckKind::Pubcomp => v5_0::Pubcomp::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(),
        };
        let Packet::Ack(ack) = read(&again, Version::V5) else { panic!("an acknowledgement") };
        prop_assert_eq!((ack.kind, ack.id, ack.reason), (kind, id, reason));
        prop_assert_eq!(ack.properties.text(property::REASON_STRING), Some(text.as_str()).filter(|text| !text.is_empty()));
        let Packet::Ack(ours) = read(&bytes, Version::V5) else { panic!("an acknowledgement") };
        prop_assert_eq!((ours.kind, ours.id, ours.reason), (kind, id, reason));
    }

    #[test]
    fn a_connect_of_theirs_is_read_as_it_was_meant(
        client in "[a-z0-9]{1,30}", clean in any::<bool>(), keep_alive in any::<u16>(), user in NAME, will in NAME,
        payload in prop::collection::vec(any::<u8>(), 0..40), qos in qos(), retain in any::<bool>(),
    ) {
        let bytes = v5_0::Connect::builder().client_id(client.as_str()).expect("an id").clean_start(clean).keep_alive(keep_alive)
            .user_name(user.as_str()).expect("a name").password("pass").expect("a password")
            .will_message(will.as_str(), payload.clone(), theirs(qos), retain).expect("a will").build().expect("a packet")
            .to_continuous_buffer();
        let Packet::Connect(connect) = read(&bytes, Version::V3_1_1) else { panic!("a CONNECT") };
        prop_assert_eq!((connect.version, connect.client_id, connect.clean_start), (Version::V5, client.as_str(), clean));
        prop_assert_eq!((connect.keep_alive_s, connect.username), (keep_alive, Some(user.as_str())));
        prop_assert_eq!(connect.password, Some(b"pass".as_slice()));
        let read = connect.will.expect("a will");
        prop_assert_eq!((read.topic, read.payload, read.qos, read.retain), (will.as_str(), payload.as_slice(), qos, retain));

        let bytes = v3_1_1::Connect::builder().client_id(client.as_str()).expect("an id").clean_session(clean).keep_alive(keep_alive)
            .build().expect("a packet").to_continuous_buffer();
        let Packet::Connect(connect) = read_3(&bytes) else { panic!("a CONNECT") };
        prop_assert_eq!((connect.version, connect.client_id, connect.clean_start), (Version::V3_1_1, client.as_str(), clean));
        prop_assert_eq!((connect.keep_alive_s, connect.username, connect.will), (keep_alive, None, None));
    }
}

fn read_3(bytes: &[u8]) -> Packet<'_> {
    read(bytes, Version::V3_1_1)
}

#[test]
fn other_answers_of_ours_are_theirs() {
    let mut properties = Written::default();
    properties.two(property::RECEIVE_MAXIMUM, 20).text(property::ASSIGNED_CLIENT_ID, "id").user("srtm", "1");
    let mut bytes = Vec::new();
    encode::connack(&mut bytes, Version::V5, true, Reason::SUCCESS, &properties);
    let (connack, _) = v5_0::Connack::parse(body(&bytes)).expect("theirs");
    assert!(connack.session_present());
    assert_eq!(connack.to_continuous_buffer(), bytes);

    bytes.clear();
    encode::connack(&mut bytes, Version::V3_1_1, false, Reason::NOT_AUTHORIZED, &properties);
    assert_eq!(bytes, [0x20, 2, 0, 5]);

    bytes.clear();
    encode::suback(&mut bytes, Version::V5, 7, &[Reason(2), Reason::NOT_AUTHORIZED]);
    assert_eq!(v5_0::Suback::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(), bytes);
    bytes.clear();
    encode::suback(&mut bytes, Version::V3_1_1, 7, &[Reason(2), Reason::NOT_AUTHORIZED]);
    assert_eq!(bytes, [0x90, 4, 0, 7, 2, 0x80]);

    bytes.clear();
    encode::unsuback(&mut bytes, Version::V5, 7, &[Reason::SUCCESS, Reason::NO_SUBSCRIPTION_EXISTED]);
    assert_eq!(v5_0::Unsuback::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(), bytes);

    bytes.clear();
    encode::disconnect(&mut bytes, Version::V5, Reason::SESSION_TAKEN_OVER, &Written::default());
    assert_eq!(v5_0::Disconnect::parse(body(&bytes)).expect("theirs").0.to_continuous_buffer(), bytes);
    let mut none = Vec::new();
    encode::disconnect(&mut none, Version::V3_1_1, Reason::SESSION_TAKEN_OVER, &Written::default());
    assert!(none.is_empty(), "3.1.1 has no DISCONNECT of a broker");
}

#[test]
fn properties_keep_their_order_and_their_bytes() {
    let mut written = Written::default();
    written.user("b", "1").text(property::CONTENT_TYPE, "t").user("a", "2");
    let mut bytes = vec![written.bytes().len() as u8];
    bytes.extend_from_slice(written.bytes());
    let mut fields = crate::protocol::mqtt::field_reader::Fields::new(&bytes);
    let properties = Properties::read(&mut fields, property::Carrier::Publish).expect("properties");
    let spans: Vec<u8> = properties.spans().flat_map(|(_, _, span)| span.to_vec()).collect();
    assert_eq!(spans, written.bytes());
    assert_eq!(properties.user("a"), Some("2"));
}
