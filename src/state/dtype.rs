use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// The element type of a tensor: every type that safetensors 0.8 knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// All element types.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The name as safetensors writes it, such as `"F32"`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Size of one element, in bits.
            pub fn bits(self) -> u64 {
                match self { $(DType::$variant => $bits,)* }
            }

            /// The type of that name, if there is one.
            pub fn from_name(name: &str) -> Option<DType> {
                match name { $($name => Some(DType::$variant),)* _ => None }
            }
        }
    };
}

dtypes! {
    /// Boolean, one byte.
    Bool = "BOOL", 8;
    /// 4-bit float (OCP MX), two elements a byte.
    F4 = "F4", 4;
    /// 6-bit float (OCP MX), 2 exponent and 3 mantissa bits, packed.
    F6E2M3 = "F6_E2M3", 6;
    /// 6-bit float (OCP MX), 3 exponent and 2 mantissa bits, packed.
    F6E3M2 = "F6_E3M2", 6;
    /// Unsigned 8-bit integer.
    U8 = "U8", 8;
    /// Signed 8-bit integer.
    I8 = "I8", 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 = "F8_E5M2", 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    F8E4M3 = "F8_E4M3", 8;
    /// 8-bit scale (OCP MX), 8 exponent bits.
    F8E8M0 = "F8_E8M0", 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite, no negative zero.
    F8E4M3Fnuz = "F8_E4M3FNUZ", 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits, finite, no negative zero.
    F8E5M2Fnuz = "F8_E5M2FNUZ", 8;
    /// Signed 16-bit integer.
    I16 = "I16", 16;
    /// Unsigned 16-bit integer.
    U16 = "U16", 16;
    /// IEEE 754 half precision.
    F16 = "F16", 16;
    /// bfloat16.
    BF16 = "BF16", 16;
    /// Signed 32-bit integer.
    I32 = "I32", 32;
    /// Unsigned 32-bit integer.
    U32 = "U32", 32;
    /// IEEE 754 single precision.
    F32 = "F32", 32;
    /// Complex of two single-precision parts.
    C64 = "C64", 64;
    /// IEEE 754 double precision.
    F64 = "F64", 64;
    /// Signed 64-bit integer.
    I64 = "I64", 64;
    /// Unsigned 64-bit integer.
    U64 = "U64", 64;
}

impl DType {
    /// Size of `elements` elements in bytes; `None` if that is no whole number of bytes or overflows.
    pub fn nbytes(self, elements: u64) -> Option<u64> {
        let bits = elements.checked_mul(self.bits())?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Size of one element in bytes; 0 for the types that are packed below one byte.
    pub fn itemsize(self) -> usize {
        (self.bits() / 8) as usize
    }

    /// Width in bytes of the unit that byte order applies to: half an element for complex numbers.
    pub fn swap_width(self) -> usize {
        match self {
            DType::C64 => 4,
            other => other.itemsize(),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust number type that is the element type of a tensor.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The element type it is stored as.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty = $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}
elements!(
    u8 = U8,
    i8 = I8,
    u16 = U16,
    i16 = I16,
    u32 = U32,
    i32 = I32,
    u64 = U64,
    i64 = I64,
    f32 = F32,
    f64 = F64
);
