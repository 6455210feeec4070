//! Every expected value was computed with Pillow (libjpeg-turbo) and numpy from the same files: the
//! hash of the bytes of the image in RGB, or of the normalised tensor.

use jitney_engine::local::TensorSpec;

use super::*;

const FILES: [(&str, &[u8]); 17] = [
    ("cat-420.jpg", include_bytes!("../../testdata/images/cat-420.jpg")),
    ("cat-422.jpg", include_bytes!("../../testdata/images/cat-422.jpg")),
    ("cat-444.jpg", include_bytes!("../../testdata/images/cat-444.jpg")),
    ("cat-alpha.png", include_bytes!("../../testdata/images/cat-alpha.png")),
    ("cat-cmyk.jpg", include_bytes!("../../testdata/images/cat-cmyk.jpg")),
    ("cat-fine.jpg", include_bytes!("../../testdata/images/cat-fine.jpg")),
    ("cat-gray.jpg", include_bytes!("../../testdata/images/cat-gray.jpg")),
    ("cat-gray16.png", include_bytes!("../../testdata/images/cat-gray16.png")),
    ("cat-lossless.webp", include_bytes!("../../testdata/images/cat-lossless.webp")),
    ("cat-lossy.webp", include_bytes!("../../testdata/images/cat-lossy.webp")),
    ("cat-narrow.jpg", include_bytes!("../../testdata/images/cat-narrow.jpg")),
    ("cat-palette.png", include_bytes!("../../testdata/images/cat-palette.png")),
    ("cat-progressive.jpg", include_bytes!("../../testdata/images/cat-progressive.jpg")),
    ("cat-restarts.jpg", include_bytes!("../../testdata/images/cat-restarts.jpg")),
    ("cat-rgb.jpg", include_bytes!("../../testdata/images/cat-rgb.jpg")),
    ("cat-turned.jpg", include_bytes!("../../testdata/images/cat-turned.jpg")),
    ("cat.png", include_bytes!("../../testdata/images/cat.png")),
];

fn file(name: &str) -> &'static [u8] {
    FILES.iter().find(|(known, _)| *known == name).expect("a known file").1
}

fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn rgb(name: &str) -> (usize, usize, u64) {
    let body = file(name);
    let image = if name.ends_with(".jpg") {
        let mut open = JpegFile::open(body).expect(name);
        let (width, height) = open.size();
        let mut planes = JpegPlanes::default();
        let image = open.decode(&Window { x: 0..width, y: 0..height }, &mut planes).expect(name);
        Pixels::of(&image, (width, height))
    } else {
        pixels::decode(body, false).expect(name)
    };
    let (width, height) = image.size();
    (width, height, hash(image.rgb()))
}

#[test]
fn files_are_decoded_to_the_bytes_that_pillow_has() {
    let expected = [
        ("cat-420.jpg", 61, 47, 0x9996_6593_d79d_4ad0),
        ("cat-422.jpg", 61, 47, 0xfbf8_42a8_be55_2177),
        ("cat-444.jpg", 61, 47, 0x7940_17b1_e0eb_055b),
        ("cat-alpha.png", 24, 20, 0xfe4f_1ef1_2d27_db6f),
        ("cat-cmyk.jpg", 61, 47, 0xa7b6_f711_2340_7f8e),
        ("cat-fine.jpg", 33, 21, 0x3d67_b7eb_6f75_c20b),
        ("cat-gray.jpg", 61, 47, 0xf243_5c51_046b_440d),
        ("cat-gray16.png", 24, 20, 0x6645_711f_bde0_1a05),
        ("cat-lossless.webp", 24, 20, 0xfe4f_1ef1_2d27_db6f),
        ("cat-narrow.jpg", 4, 40, 0x2a2f_c14e_3e8a_c880),
        ("cat-palette.png", 24, 20, 0xc12d_69ed_876a_f6a7),
        ("cat-progressive.jpg", 61, 47, 0xc68f_6643_3e60_2842),
        ("cat-restarts.jpg", 61, 47, 0x9996_6593_d79d_4ad0),
        ("cat-rgb.jpg", 61, 47, 0xd8e8_f807_47fe_cad1),
        ("cat.png", 24, 20, 0xfe4f_1ef1_2d27_db6f),
    ];
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(name, width, height, sum)| rgb(name) != (*width, *height, *sum))
        .collect();
    assert!(wrong.is_empty(), "{wrong:x?}");
}

fn fitted(yaml: &str, shape: [usize; 3], datatype: Datatype) -> Result<ImagePreparation, String> {
    let rule: ImageRule = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
    let dims = shape.map(Dim::Fixed);
    let shape = std::iter::once(Dim::Open("n".to_owned())).chain(dims).collect();
    let inputs = vec![TensorSpec { name: "x".to_owned(), datatype, shape: Some(shape) }];
    rule.fit(&Signature { inputs, outputs: Vec::new() })
}

const IMAGENET: &str = "mean: [0.485, 0.456, 0.406]\nstd: [0.229, 0.224, 0.225]\n";

#[test]
fn tensors_equal_those_of_torchvision() {
    let check = |name: &str, more: &str, shape: [usize; 3], expected: u64| {
        let gray = more.contains("gray");
        let yaml = if gray { more.to_owned() } else { format!("{IMAGENET}{more}") };
        let prepared = fitted(&yaml, shape, Datatype::Fp32).expect(more).prepare(file(name));
        assert_eq!(hash(prepared.expect(name)), expected, "{name} with {more}");
    };
    check("cat-420.jpg", "resize: 40\ncrop: 32", [3, 32, 32], 0x8b47_1d4d_a46f_8172);
    let bicubic = "resize: 40\ncrop: 32\ninterpolation: bicubic";
    check("cat-420.jpg", bicubic, [3, 32, 32], 0x9521_3844_770c_bb87);
    check("cat-420.jpg", "resize: [30, 20]", [3, 30, 20], 0x4fb9_109e_4d6e_f81b);
    // Smaller than the crop in one direction: black above and below.
    check("cat-444.jpg", "crop: 50", [3, 50, 50], 0x27dc_253b_7f43_3447);
    let larger = "resize: 90\ncrop: 80\ninterpolation: bicubic";
    check("cat-420.jpg", larger, [3, 80, 80], 0x69eb_b703_b607_1cba);
    check("cat.png", "resize: 16\ncrop: 13", [3, 13, 13], 0xf25f_0e1b_ac75_7c52);
    check("cat-gray.jpg", "resize: 40\ncrop: 32", [3, 32, 32], 0x37dd_fd1f_5063_e380);
    // The layout is seen from the model's shape.
    check("cat-420.jpg", "resize: 40\ncrop: 32\ncolor: bgr", [32, 32, 3], 0xcb20_842b_4138_6a2a);
    let gray = "resize: 40\ncrop: 32\ncolor: gray\nmean: 0.5\nstd: 0.25";
    check("cat-420.jpg", gray, [1, 32, 32], 0xfc03_cb72_0cf0_ca04);
    check("cat-turned.jpg", "resize: 40\ncrop: 32\nexif: true", [3, 32, 32], 0x5df5_7612_348e_e9db);
}

#[test]
fn bytes_and_halves_are_made_where_the_model_takes_them() {
    let bytes = fitted("resize: [2, 2]", [2, 2, 3], Datatype::Uint8).expect("fits");
    assert_eq!(bytes.prepare(file("cat.png")).expect("a cat").len(), 12);
    let halves = fitted("resize: [2, 2]", [3, 2, 2], Datatype::Fp16).expect("fits");
    assert_eq!(halves.prepare(file("cat.png")).expect("a cat").len(), 24);
}

#[test]
fn a_rule_that_does_not_fit_the_model_is_rejected() {
    let check = |yaml: &str, datatype, expected: &str| {
        let told = fitted(yaml, [3, 32, 32], datatype).expect_err(yaml);
        assert!(told.contains(expected), "{told}");
    };
    check("resize: 40\ncrop: 31", Datatype::Fp32, "shape [n, 3, 31, 31], the model takes FP32");
    check("resize: 40", Datatype::Fp32, "the size of the tensor is not known");
    check("crop: 32\nmean: [1, 2]", Datatype::Fp32, "image.mean: 2 numbers for 3 channels");
    check("crop: 32\nstd: 0", Datatype::Fp32, "a number is 0");
    check("crop: 32\nscale: 2", Datatype::Uint8, "the model takes bytes");
    check("crop: 32", Datatype::Int64, "the model takes INT64");
    check("crop: 0", Datatype::Fp32, "a size is 0");
}

#[test]
fn what_cannot_be_decoded_is_said() {
    let check = |rule: &str, body: &[u8], expected: &str| {
        let told = fitted(rule, [3, 32, 32], Datatype::Fp32).expect("fits").prepare(body);
        let told = told.expect_err(expected);
        assert!(told.contains(expected), "{told}");
    };
    let (crop, jpeg) = ("crop: 32", file("cat-420.jpg"));
    check(crop, b"hello", "neither a JPEG nor a PNG nor a WebP");
    check(crop, &jpeg[..jpeg.len() - 200], "cut off");
    check(crop, &jpeg[..100], "cut off");
    check(crop, &file("cat.png")[..200], "cannot be decoded");
    check("crop: 32\nmax_pixels: 2000", jpeg, "61 x 47 pixels; at most 2000");
    // The header promises 65,535 x 65,535 pixels, and no memory is taken for them.
    let mut huge = jpeg.to_vec();
    let frame = huge.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
    huge[frame + 5..frame + 9].fill(0xff);
    check(crop, &huge, "65535 x 65535 pixels");
}

#[test]
fn no_damage_panics() {
    let crop = fitted("resize: 40\ncrop: 32", [3, 32, 32], Datatype::Fp32).expect("fits");
    let mut seed = 1u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize
    };
    for name in ["cat-420.jpg", "cat-progressive.jpg", "cat-restarts.jpg", "cat-cmyk.jpg"] {
        for _ in 0..60 {
            let mut damaged = file(name).to_vec();
            for _ in 0..3 {
                let place = 2 + random() % (damaged.len() - 2);
                damaged[place] = random() as u8;
            }
            let told = crop.prepare(&damaged).err().unwrap_or_default();
            assert_ne!(told, ImageError::Panicked.to_string(), "{name}");
        }
    }
}
