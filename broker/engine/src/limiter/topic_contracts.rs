//! Under which contracts the clients of a topic are.

use std::collections::HashMap;
use std::rc::Rc;

use serde::Deserialize;

/// The namespace of tenants: their subjects are the names that topics give.
pub const TENANTS: &str = "tenants";

/// Characters of a publisher's id by which it is known here: at most 1,024 bytes, which a subject may have.
const LONGEST: usize = 256;

/// Which contracts the publishers of a topic are under, as the control plane says it. Empty names are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// The namespace of publishers that `named` does not name.
    pub publishers: Box<str>,
    /// {namespace: publishers}.
    pub named: HashMap<Box<str>, Vec<Box<str>>>,
    /// The namespace of consumers.
    pub consumers: Box<str>,
    /// Whose topic it is.
    pub tenant: Box<str>,
}

/// Who is held to a contract.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// The same as `Terms`, to look publishers up in.
#[derive(Debug)]
pub struct TopicContracts {
    publishers: Rc<str>,
    named: HashMap<Box<str>, Rc<str>>,
    consumers: Box<str>,
    pub tenant: Option<Rc<Subject>>,
}

impl TopicContracts {
    /// None: there is nobody whom they hold.
    pub fn of(terms: Terms) -> Option<Self> {
        if terms == Terms::default() {
            return None;
        }
        let Terms { publishers, named, consumers, tenant } = terms;
        let by_namespace = named.into_iter().map(|(namespace, ids)| (Rc::<str>::from(namespace), ids));
        Some(Self {
            publishers: publishers.into(),
            named: by_namespace
                .flat_map(|(namespace, ids)| ids.into_iter().map(move |id| (id, namespace.clone())))
                .collect(),
            consumers,
            tenant: (!tenant.is_empty()).then(|| Rc::new(Subject { namespace: TENANTS.into(), name: tenant })),
        })
    }

    /// What `publisher` is held to. None: nothing but the topic's limit.
    pub fn subject(&self, publisher: &str) -> Option<Rc<Subject>> {
        subject(self.named.get(publisher).unwrap_or(&self.publishers), publisher)
    }

    pub fn holds_consumers(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// What a consumer is held to. `known`: what this gave for it before, on this topic.
    pub fn consumer(&self, consumer: &str, known: Option<Rc<Subject>>) -> Option<Rc<Subject>> {
        known.filter(|known| known.namespace == self.consumers).or_else(|| subject(&self.consumers, consumer))
    }
}

fn subject(namespace: &str, id: &str) -> Option<Rc<Subject>> {
    let subject = || Subject { namespace: namespace.into(), name: id.chars().take(LONGEST).collect() };
    (!namespace.is_empty()).then(|| Rc::new(subject()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(namespace: &str, name: &str) -> Rc<Subject> {
        Rc::new(Subject { namespace: namespace.into(), name: name.into() })
    }

    #[test]
    fn terms_name_a_contract_for_some_publishers_and_one_for_all_others() {
        let named = HashMap::from([("gateways".into(), vec!["g".into()])]);
        let contracts = TopicContracts::of(Terms {
            publishers: "sensors".into(),
            named,
            consumers: "c".into(),
            tenant: "acme".into(),
        });
        let contracts = contracts.expect("some");
        assert_eq!(contracts.subject("g"), Some(subject("gateways", "g")));
        assert_eq!(contracts.subject("s"), Some(subject("sensors", "s")));
        assert_eq!(contracts.tenant, Some(subject(TENANTS, "acme")));
        let known = contracts.consumer("1", None);
        assert_eq!(known, Some(subject("c", "1")));
        assert_eq!(contracts.consumer("1", Some(subject("before", "1"))), known, "the terms have changed");
        assert!(TopicContracts::of(Terms::default()).is_none());
        let only_tenant = TopicContracts::of(Terms { tenant: "acme".into(), ..Terms::default() }).expect("some");
        assert_eq!((only_tenant.subject("s"), only_tenant.consumer("c", None)), (None, None));
    }
}
