//! Reasons and causes of losses in words. JSON has their codes instead.

use crate::message::{Cause, Reason};

/// Returns a reason in words.
pub fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Disabled => "repair is off",
        Reason::Deadline => "not repaired in time",
        Reason::Expired => "no longer kept by the publisher",
        Reason::Overflow => "a limit of this peer was reached",
        Reason::PublisherGone => "the publisher left",
        Reason::Silent => "the publisher is silent",
        Reason::Crashed => "the publisher crashed",
        Reason::Reported => "reported by a receiver",
        Reason::Blackhole => "multicast does not arrive",
        Reason::Contradicted => "datagrams contradict each other",
        Reason::Start => "sent before the first contact",
    }
}

/// Returns the reason with this code in words, or the code itself if a newer peer sent it.
pub fn reason_code_text(code: &str) -> &str {
    match Reason::ALL.into_iter().find(|reason| reason.as_str() == code) {
        Some(reason) => reason_text(reason),
        None => code,
    }
}

/// Returns the cause with this code in words, or the code itself if a newer peer sent it.
pub fn cause_code_text(code: &str) -> &str {
    match code {
        "NETWORK" => "lost in the network",
        "LOCAL_OVERRUN" => "dropped by this host's kernel",
        "MIXED" => "partly dropped by this host's kernel",
        code => code,
    }
}

/// Returns a cause in words, with the numbers of datagrams if this host's kernel dropped some.
pub fn cause_text(cause: Cause) -> String {
    let words = cause_code_text(cause.as_str());
    match cause {
        Cause::Network => words.to_owned(),
        Cause::LocalOverrun { datagrams } => format!("{words}: {datagrams}"),
        Cause::Mixed { overrun, network } => format!("{words}: {overrun} of {}", overrun.saturating_add(network)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_words_of_their_own() {
        let mut words: Vec<&str> = Reason::ALL.iter().map(|reason| reason_code_text(reason.as_str())).collect();
        let causes = [Cause::Network, Cause::LocalOverrun { datagrams: 1 }, Cause::Mixed { overrun: 1, network: 2 }];
        words.extend(causes.iter().map(|cause| cause_code_text(cause.as_str())));
        assert!(words.iter().all(|text| text.chars().any(|c| c == ' ') && !text.contains('_')), "{words:?}");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len() + causes.len());
        assert_eq!((reason_code_text("NEWER"), cause_code_text("NEWER")), ("NEWER", "NEWER"));
        assert_eq!(cause_text(causes[2]), "partly dropped by this host's kernel: 1 of 3");
    }
}
