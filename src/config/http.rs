//! What `http` steps may reach, and how much. Without an allowed host the server runs none.

use std::{net::IpAddr, str::FromStr};

/// Options of `http` steps, which run inside the server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options for http steps")]
pub struct Http {
    /// Runs `http` steps on this server, and lets them reach these hosts: `api.example.com`, `*.example.com` for all
    /// names below it, `*` for any; with `:PORT` on that port, else on 80 for http and 443 for https. Several as a list
    /// with commas, or by naming the option again. Without it the server runs none
    #[arg(long = "http-allow", env = "ORBIT_HTTP_ALLOW", value_name = "HOST[:PORT]", value_delimiter = ',')]
    pub allow: Vec<HostRule>,

    /// Networks that `http` steps may reach although their addresses are private, loopback or link-local, as
    /// `10.1.0.0/16` or `fd00::/8`. The host must be allowed as well. Whoever may deploy then reaches what is there
    #[arg(long = "http-allow-private", env = "ORBIT_HTTP_ALLOW_PRIVATE", value_name = "CIDR", value_delimiter = ',')]
    pub allow_private: Vec<Network>,

    /// Requests of `http` steps that this server makes at once: 1 to 1000. Each takes memory for its request and its
    /// response
    #[arg(long = "http-slots", env = "ORBIT_HTTP_SLOTS", value_name = "COUNT", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub slots: u32,

    /// Largest body of a response that an `http` step takes: 1KiB to 1536KiB. A larger one fails the step
    #[arg(long = "http-response-size", env = "ORBIT_HTTP_RESPONSE_SIZE", value_name = "SIZE", default_value = "1MiB",
          value_parser = parse_response_size)]
    pub response_bytes_max: usize,
}

impl Default for Http {
    fn default() -> Self {
        Self { allow: Vec::new(), allow_private: Vec::new(), slots: 64, response_bytes_max: 1 << 20 }
    }
}

fn parse_response_size(text: &str) -> Result<usize, String> {
    let bytes = super::parse_size(text)?;
    // Bytes that are no text are kept as base64, a third longer, and the whole must fit a payload of 2 MiB.
    if !(1 << 10..=1536 << 10).contains(&bytes) {
        return Err("must be 1KiB to 1536KiB".to_owned());
    }
    Ok(usize::try_from(bytes).expect("it is at most 1.5 MiB"))
}

/// Hosts that `http` steps may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    hosts: Hosts,
    /// `None` stands for the usual port of the scheme.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// This one, as the parser of addresses writes it.
    One(String),
    /// All whose name ends so; begins with a dot.
    Below(String),
}

impl HostRule {
    /// Whether a request to this host and port is allowed. `host` is written as in a parsed URL, IPv6 in brackets;
    /// `usual_port` is that of the URL's scheme.
    #[must_use]
    pub fn allows(&self, host: &str, port: u16, usual_port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let is_host = match &self.hosts {
            Hosts::Any => true,
            Hosts::One(one) => host == one,
            Hosts::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        };
        is_host && port == self.port.unwrap_or(usual_port)
    }
}

impl FromStr for HostRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong =
            || format!("{text:?} is not a host such as api.example.com, *.example.com, [::1] or *, with :PORT or not");
        // The colons of an address of IPv6 are inside brackets.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
                (host, Some(port))
            }
            _ => (text, None),
        };
        let parse = |host: &str| {
            let host = url::Host::parse(host.strip_suffix('.').unwrap_or(host)).map_err(|_| wrong())?;
            // What the URL parser would not give can never match.
            let host = host.to_string();
            if host.contains(['*', '/', '@']) { Err(wrong()) } else { Ok(host) }
        };
        let hosts = match host.strip_prefix("*.") {
            _ if host == "*" => Hosts::Any,
            Some(domain) if domain.parse::<IpAddr>().is_err() => Hosts::Below(format!(".{}", parse(domain)?)),
            Some(_) => return Err(wrong()),
            None => Hosts::One(parse(host)?),
        };
        Ok(Self { hosts, port })
    }
}

/// A network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address is one of the network's.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || format!("{text:?} is not a network such as 10.1.0.0/16, 192.168.1.7/32 or fd00::/8");
        let (first, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let first: IpAddr = first.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= bits).ok_or_else(wrong)?;
        // A bit beyond the prefix is a slip, which would open more than was meant.
        let is_first = match first {
            IpAddr::V4(first) => first.to_bits().checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
            IpAddr::V6(first) => first.to_bits().checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
        };
        if is_first { Ok(Self { first, prefix }) } else { Err(format!("{text:?} has bits beyond its first {prefix}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rule: &str, host: &str, port: u16) -> bool {
        rule.parse::<HostRule>().unwrap().allows(host, port, 443)
    }

    #[test]
    fn a_rule_names_a_host_all_below_one_or_any() {
        assert!(allows("API.example.com", "api.example.com", 443));
        assert!(allows("api.example.com", "api.example.com.", 443));
        assert!(!allows("example.com", "api.example.com", 443) && !allows("example.com", "example.com.evil.test", 443));
        assert!(allows("*.example.com", "a.b.example.com", 443));
        assert!(!allows("*.example.com", "example.com", 443) && !allows("*.example.com", "notexample.com", 443));
        assert!(allows("*", "anything.test", 443) && !allows("*", "anything.test", 8443));
        assert!(allows("[::1]", "[::1]", 443) && allows("[0:0::1]:8080", "[::1]", 8080));
        assert!(allows("bücher.example", "xn--bcher-kva.example", 443));
    }

    #[test]
    fn a_rule_without_a_port_allows_the_usual_one_only() {
        assert!(allows("h.test", "h.test", 443) && !allows("h.test", "h.test", 8443));
        assert!(allows("h.test:8443", "h.test", 8443) && !allows("h.test:8443", "h.test", 443));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in
            ["", "a:0", "a:70000", "a:b", "https://a", "a/b", "*.", "a.*", "*a.test", "*.10.0.0.1", "::1", "u@h"]
        {
            assert!(text.parse::<HostRule>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_network_holds_the_addresses_of_its_prefix() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse::<IpAddr>().unwrap())
        };
        assert!(holds("127.0.0.0/8", "127.9.9.9") && !holds("127.0.0.0/8", "128.0.0.0"));
        assert!(holds("10.1.2.3/32", "10.1.2.3") && !holds("10.1.2.3/32", "10.1.2.4"));
        assert!(holds("0.0.0.0/0", "255.0.0.1") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fdff::1") && !holds("fd00::/8", "fe00::1") && holds("::/0", "::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.1/8", "fd00::1/8", "a/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
