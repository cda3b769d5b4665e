//! What tokens open, and what is refused.

use super::*;

const NOW: u64 = 1_800_000_000;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32])
}

fn claims() -> Claims {
    Claims {
        namespace: "agents".into(),
        sandbox: "pb-1".into(),
        pod: "pb-1-x".into(),
        uid: "0b5ee2c0-55a1-4a53-8d0e-6a1f3d1c2b4a".into(),
        container: "sandbox".into(),
        expires: NOW + 900,
    }
}

fn own() -> Identity {
    let Claims { namespace, uid, container, .. } = claims();
    Identity { namespace, uid, container, ..Identity::default() }
}

fn check(token: &str) -> Result<Claims, TokenError> {
    verify(token, &[key(1).public()], &own(), NOW)
}

/// Tokens and keys that older clients made have to stay valid: these never change.
#[test]
fn the_format_stays_what_it_is() {
    assert_eq!(key(1).secret_text(), "podbay-private-v1.AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE");
    assert_eq!(key(1).public().to_string(), "podbay-public-v1.iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w");
    let token = "v1.eyJuYW1lc3BhY2UiOiJhZ2VudHMiLCJzYW5kYm94IjoicGItMSIsInBvZCI6InBiLTEteCIsInVpZCI6IjBiNWVlMmMwLTU1YT\
                 EtNGE1My04ZDBlLTZhMWYzZDFjMmI0YSIsImNvbnRhaW5lciI6InNhbmRib3giLCJleHBpcmVzIjoxODAwMDAwOTAwfQ.r7-QQF9IZHxrg12BmnYX7Di-n_HBTdnQ7T3siQfEFBZIEduZ3eCtAN35EVz0Py6nGgqd4MsOkSuR1tqjJ_PFBA";
    assert_eq!(key(1).sign(&claims()), token);
    assert_eq!(check(token), Ok(claims()));
}

#[test]
fn a_token_opens_one_sandbox_for_a_while() {
    let token = key(1).sign(&claims());
    assert_eq!(check(&token), Ok(claims()));
    let at = |now| verify(&token, &[key(1).public()], &own(), now).map(drop);
    assert_eq!(at(NOW + 899), Ok(()));
    for late in [NOW + 900, NOW + 901, u64::MAX] {
        assert_eq!(at(late), Err(TokenError::Expired));
    }
    assert_eq!(at(NOW + 900 - LONGEST_LIFE), Ok(()));
    for early in [0, NOW + 899 - LONGEST_LIFE] {
        assert_eq!(at(early), Err(TokenError::TooLongLived));
    }
    let forever = key(1).sign(&Claims { expires: u64::MAX, ..claims() });
    assert_eq!(check(&forever), Err(TokenError::TooLongLived));
}

#[test]
fn a_token_for_anything_else_is_refused() {
    for other in [
        Claims { namespace: "other".into(), ..claims() },
        Claims { uid: "other".into(), ..claims() },
        Claims { uid: String::new(), ..claims() },
        Claims { container: "other".into(), ..claims() },
    ] {
        assert_eq!(check(&key(1).sign(&other)), Err(TokenError::OtherSandbox), "{other:?}");
    }
    let token = key(1).sign(&claims());
    let with = |own: Identity| verify(&token, &[key(1).public()], &own, NOW).map(drop);
    let pod = |name: &str| Some(name.to_owned());
    assert_eq!(with(Identity { pod: pod("pb-1-x"), sandbox: pod("pb-1"), ..own() }), Ok(()));
    assert_eq!(with(Identity { pod: pod("pb-1-y"), ..own() }), Err(TokenError::OtherSandbox));
    assert_eq!(with(Identity { sandbox: pod("pb-2"), ..own() }), Err(TokenError::OtherSandbox));
    // A podbayd that doesn't know who it is believes nobody.
    let nobody = key(1).sign(&Claims { uid: String::new(), ..claims() });
    let unknown = Identity { uid: String::new(), ..own() };
    assert_eq!(verify(&nobody, &[key(1).public()], &unknown, NOW), Err(TokenError::OtherSandbox));
}

/// Whoever can't ask the cluster for the pod names the Sandbox. That opens this Sandbox and nothing else.
#[test]
fn a_token_without_a_pod_opens_only_the_sandbox_that_it_names() {
    let own = || Identity { sandbox_object: Some("pool-x7k2q".into()), ..own() };
    let with = |own: &Identity, claims: &Claims| verify(&key(1).sign(claims), &[key(1).public()], own, NOW).map(drop);
    let good = Claims::without_pod("agents", "pool-x7k2q", None, NOW + 900);
    assert_eq!(with(&own(), &good), Ok(()));
    assert_eq!(with(&own(), &Claims { container: "sandbox".into(), ..good.clone() }), Ok(()));
    for other in [
        Claims { sandbox: "pool-zzzzz".into(), ..good.clone() },
        Claims { sandbox: String::new(), ..good.clone() },
        // The claim's name isn't the Sandbox's.
        Claims { sandbox: "pb-1".into(), ..good.clone() },
        Claims { namespace: "other".into(), ..good.clone() },
        Claims { namespace: String::new(), ..good.clone() },
        Claims { container: "other".into(), ..good.clone() },
        // Whoever names a pod has to name it in full.
        Claims { pod: "pool-x7k2q".into(), ..good.clone() },
        Claims { uid: "other".into(), ..good.clone() },
    ] {
        assert_eq!(with(&own(), &other), Err(TokenError::OtherSandbox), "{other:?}");
    }
    // A podbayd that wasn't told its Sandbox's name accepts none of them, whatever else it knows.
    let known = Some("pool-x7k2q".to_owned());
    for unaware in [
        Identity { sandbox_object: None, ..own() },
        Identity { sandbox_object: None, pod: known.clone(), sandbox: known.clone(), ..own() },
    ] {
        assert_eq!(with(&unaware, &good), Err(TokenError::NoPod), "{unaware:?}");
    }
    for nobody in [
        Identity { sandbox_object: Some(String::new()), ..own() },
        Identity { namespace: String::new(), ..own() },
        Identity::default(),
    ] {
        let claims = Claims { sandbox: String::new(), namespace: nobody.namespace.clone(), ..good.clone() };
        assert!(with(&nobody, &claims).is_err() && with(&nobody, &good).is_err(), "{nobody:?}");
    }
    // It doesn't live longer, and tokens that name the pod go on to work.
    assert_eq!(with(&own(), &Claims { expires: NOW, ..good.clone() }), Err(TokenError::Expired));
    let forever = Claims { expires: NOW + LONGEST_LIFE + 1, ..good.clone() };
    assert_eq!(with(&own(), &forever), Err(TokenError::TooLongLived));
    assert_eq!(with(&own(), &claims()), Ok(()));
    assert_eq!(verify(&key(2).sign(&good), &[key(1).public()], &own(), NOW), Err(TokenError::Signature));
}

#[test]
fn two_keys_are_valid_while_one_is_rotated() {
    let keys = [key(1).public(), key(2).public()];
    for signer in [1, 2] {
        assert!(verify(&key(signer).sign(&claims()), &keys, &own(), NOW).is_ok());
    }
    assert_eq!(verify(&key(3).sign(&claims()), &keys, &own(), NOW), Err(TokenError::Signature));
    assert_eq!(verify(&key(1).sign(&claims()), &[], &own(), NOW), Err(TokenError::Signature));
    let text = format!("{}\n {}\n", keys[0], keys[1]);
    assert_eq!(PublicKey::parse_all(&text).unwrap(), keys);
    assert_eq!(PublicKey::parse_all(&format!("{text},{}", keys[0])), Err(KeyError::TooMany));
    assert_eq!(PublicKey::parse_all(" ,\n"), Err(KeyError::Malformed));
}

#[test]
fn a_token_with_any_other_byte_is_refused() {
    let token = key(1).sign(&claims());
    let mut tried = 0;
    for place in 0..token.len() {
        for byte in 0..=255u8 {
            let mut changed = token.clone().into_bytes();
            if std::mem::replace(&mut changed[place], byte) == byte {
                continue;
            }
            // Headers are text; anything else never gets as far.
            let Ok(changed) = String::from_utf8(changed) else { continue };
            // Most change the payload or the signature, and each of those costs a verification.
            if byte.is_ascii_alphanumeric() && (place + usize::from(byte)) % 16 != 0 && place + 2 < token.len() {
                continue;
            }
            assert!(check(&changed).is_err(), "byte {place} as {byte}");
            tried += 1;
        }
    }
    assert!(tried > 10_000, "{tried}");
}

#[test]
fn what_is_no_token_is_refused_without_a_panic() {
    let token = key(1).sign(&claims());
    for end in 0..token.len() {
        assert!(check(&token[..end]).is_err(), "the first {end} bytes");
    }
    for more in ["=", ".", "A", " ", "\n", "..", "%"] {
        assert!(check(&format!("{token}{more}")).is_err(), "followed by {more:?}");
        assert!(check(&format!("{more}{token}")).is_err(), "after {more:?}");
    }
    assert_eq!(check(""), Err(TokenError::Missing));
    assert_eq!(check(&"v".repeat(LONGEST)), Err(TokenError::Malformed));
    assert_eq!(check(&"v".repeat(LONGEST + 1)), Err(TokenError::TooLong));
    for bad in ["v1", "v1.", "v1..", "v1...", "v2.e30.AA", "v1.e30.AA", "v1.é.é", "\u{0}.\u{0}.\u{0}"] {
        assert_eq!(check(bad), Err(TokenError::Malformed), "{bad:?}");
    }
    // Signed, and not what it should be.
    let with = |payload: &[u8]| {
        let signature = key(1).0.sign(&signed(payload));
        format!("v1.{}.{}", BASE64.encode(payload), BASE64.encode(signature.to_bytes()))
    };
    for payload in [&b""[..], b"{}", b"null", b"\xff", b"[[[[[[", br#"{"namespace":7}"#] {
        assert_eq!(check(&with(payload)), Err(TokenError::Malformed), "{payload:?}");
    }
    // A signature of something else.
    let (_, payload_and_rest) = token.split_once('.').unwrap();
    let payload = BASE64.decode(payload_and_rest.split_once('.').unwrap().0).unwrap();
    let bare = BASE64.encode(key(1).0.sign(&payload).to_bytes());
    assert_eq!(check(&format!("v1.{}.{bare}", BASE64.encode(&payload))), Err(TokenError::Signature));
}
