//! The laws that the stored bodies of the ledger and of the cell share, and the form of golden files.

/// Tests of `Source`, `VARIANTS`, `encoded` and `decode_body` of the file that uses it.
macro_rules! body_laws {
    () => {
        #[test]
        fn the_generator_makes_every_variant() {
            let mut source = Source::new(1);
            let names: BTreeSet<&str> =
                (0..VARIANTS).map(|variant| event_name(&source.event(variant))).collect();
            assert_eq!(names.len(), VARIANTS as usize);
            // The stored tag of a variant is its number in the generator: [1, null, [[tag, …]]].
            for variant in 0..VARIANTS {
                let bytes = encoded(None, &[source.event(variant)]);
                let tag = if variant < 24 { bytes[5] } else { bytes[6] };
                assert_eq!(u32::from(tag), variant);
            }
        }

        proptest! {
            #[test]
            fn every_event_round_trips_byte_for_byte(seed in any::<u64>()) {
                let mut source = Source::new(seed);
                let header = (source.below(4) > 0).then(|| source.header());
                let events: Vec<Event> = (0..VARIANTS).map(|variant| source.event(variant)).collect();
                let bytes = encoded(header.as_ref(), &events);
                let body = decode_body(&bytes).expect("just written");
                prop_assert_eq!(&body.header, &header);
                prop_assert_eq!(&body.events, &events);
                prop_assert_eq!(encoded(body.header.as_ref(), &body.events), bytes);
            }

            #[test]
            fn any_cbor_tool_can_read_a_body(seed in any::<u64>()) {
                let mut source = Source::new(seed);
                let header = source.header();
                let events: Vec<Event> = (0..VARIANTS).map(|variant| source.event(variant)).collect();
                let bytes = encoded(Some(&header), &events);
                let mut other = minicbor::Decoder::new(&bytes);
                other.skip().expect("another implementation reads it");
                prop_assert_eq!(other.position(), bytes.len());
            }

            #[test]
            fn damaged_bytes_are_refused_or_encode_exactly_their_value(
                seed in any::<u64>(), variant in 0..VARIANTS, at in any::<prop::sample::Index>(),
                value in any::<u8>(),
            ) {
                let mut source = Source::new(seed);
                let header = source.header();
                let mut bytes = encoded(Some(&header), &[source.event(variant)]);
                let at = at.index(bytes.len());
                bytes[at] = value;
                if let Ok(body) = decode_body(&bytes) {
                    prop_assert_eq!(encoded(body.header.as_ref(), &body.events), bytes);
                }
            }

            #[test]
            fn cut_off_and_longer_bodies_are_refused(seed in any::<u64>(), variant in 0..VARIANTS) {
                let mut source = Source::new(seed);
                let mut bytes = encoded(None, &[source.event(variant)]);
                for length in 0..bytes.len() {
                    prop_assert!(decode_body(&bytes[..length]).is_err());
                }
                bytes.push(0);
                prop_assert_eq!(decode_body(&bytes), Err(FormatError::TrailingBytes { left: 1 }));
            }

            #[test]
            fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
                for prefix in [&[][..], &[0x83, 1, 0xf6, 0x81][..], &[0x83, 1, 0xf6, 0x81, 0x82][..]] {
                    let bytes = [prefix, &bytes].concat();
                    if let Ok(body) = decode_body(&bytes) {
                        prop_assert_eq!(encoded(body.header.as_ref(), &body.events), bytes);
                    }
                }
            }
        }
    };
}
pub(crate) use body_laws;

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<&str> = (0..digits.len())
        .step_by(96)
        .map(|start| &digits[start..digits.len().min(start + 96)])
        .collect();
    lines.join("\n") + "\n"
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a golden file is hexadecimal");
    digits
        .chunks(2)
        .map(|pair| u8::try_from(digit(pair[0]) * 16 + digit(pair[1])).expect("two digits"))
        .collect()
}
