// Half precision as CUDA's header of this name has it. Conversions are exact to the bit; every operation is computed
// wider and rounded once to nearest even, as the device does.
#pragma once

#include "cuda_on_cpu.h"

namespace nnz_cpu {

inline double half_to_double(unsigned short half) {
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude;
    if (exponent == 31)
        magnitude = mantissa ? __builtin_nan("") : __builtin_inf();
    else if (exponent == 0)
        magnitude = mantissa * 0x1p-24;
    else
        magnitude =
            from_bits<double>(static_cast<uint64_t>(exponent + 1008) << 52 | static_cast<uint64_t>(mantissa) << 42);
    return half & 0x8000 ? -magnitude : magnitude;
}

inline float half_to_float(unsigned short half) {
    // Half's exponent and mantissa placed in a float are the value times 2^-112; the product is exact, subnormals included.
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, rest = static_cast<uint32_t>(half & 0x7fff) << 13;
    if ((half & 0x7c00) == 0x7c00) return from_bits<float>(sign | rest | 0x7f800000u);
    return from_bits<float>(sign | to_bits(from_bits<float>(rest) * 0x1p112f));
}

inline unsigned short half_from_double(double value) {
    const uint64_t bits = to_bits(value);
    const auto sign = static_cast<unsigned short>(bits >> 48 & 0x8000);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
    if (value != value) return 0x7fff;
    if (exponent > 15) return sign | 0x7c00;
    if (exponent < -25) return sign;
    const int shift = exponent >= -14 ? 42 : 42 - 14 - exponent;  // bits that half can't hold
    const uint64_t half_way = uint64_t{1} << (shift - 1), dropped = mantissa & ((uint64_t{1} << shift) - 1);
    uint64_t kept = mantissa >> shift;
    if (exponent >= -14)
        kept += static_cast<uint64_t>(exponent + 14) << 10;  // the leading one adds the last exponent unit
    if (dropped > half_way || (dropped == half_way && (kept & 1))) ++kept;  // a carry moves into the exponent rightly
    return static_cast<unsigned short>(sign | kept);
}

// a * b + c rounded once: the product of two halves is exact in double, and an inexact sum is made odd, so that rounding
// it again to half can't meet a false tie.
inline unsigned short half_fma(double a, double b, double c) {
    const double product = a * b, sum = product + c;
    if (!__builtin_isfinite(sum)) return half_from_double(sum);
    const double part = sum - product, lost = (product - (sum - part)) + (c - part);
    uint64_t bits = to_bits(sum);
    if (lost != 0 && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
    return half_from_double(from_bits<double>(bits));
}

}  // namespace nnz_cpu

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float value) : bits(nnz_cpu::half_from_double(value)) {}
    __half(double value) : bits(nnz_cpu::half_from_double(value)) {}
    __half(int value) : bits(nnz_cpu::half_from_double(value)) {}
    operator float() const { return nnz_cpu::half_to_float(bits); }
    static __half of_bits(unsigned short bits) {
        __half half;
        half.bits = bits;
        return half;
    }
};
struct __align__(4) __half2 {
    __half x, y;
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half a) { return nnz_cpu::half_to_float(a.bits); }
inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half __double2half(double a) { return __half(a); }
inline __half __int2half_rn(int a) { return __half(a); }
inline int __half2int_rn(__half a) { return static_cast<int>(rintf(__half2float(a))); }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline short __half_as_short(__half a) { return static_cast<short>(a.bits); }
inline __half __ushort_as_half(unsigned short a) { return __half::of_bits(a); }
inline __half __short_as_half(short a) { return __half::of_bits(static_cast<unsigned short>(a)); }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {__half2float(a.x), __half2float(a.y)}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return __half2float(a.x); }
inline float __high2float(__half2 a) { return __half2float(a.y); }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }

inline __half __hfma(__half a, __half b, __half c) {
    using nnz_cpu::half_to_double;
    return __half::of_bits(nnz_cpu::half_fma(half_to_double(a.bits), half_to_double(b.bits), half_to_double(c.bits)));
}
// Sums, products and quotients of two halves round the same through float as directly: 24 >= 2 * 11 + 2 bits.
inline __half __hadd(__half a, __half b) { return __half2float(a) + __half2float(b); }
inline __half __hsub(__half a, __half b) { return __half2float(a) - __half2float(b); }
inline __half __hmul(__half a, __half b) { return __half2float(a) * __half2float(b); }
inline __half __hdiv(__half a, __half b) { return __half2float(a) / __half2float(b); }
inline __half __hneg(__half a) { return __half::of_bits(a.bits ^ 0x8000); }
inline __half __habs(__half a) { return __half::of_bits(a.bits & 0x7fff); }
inline __half __hmax(__half a, __half b) { return fmaxf(__half2float(a), __half2float(b)); }
inline __half __hmin(__half a, __half b) { return fminf(__half2float(a), __half2float(b)); }
inline bool __heq(__half a, __half b) { return __half2float(a) == __half2float(b); }
inline bool __hne(__half a, __half b) { return __half2float(a) != __half2float(b); }
inline bool __hlt(__half a, __half b) { return __half2float(a) < __half2float(b); }
inline bool __hle(__half a, __half b) { return __half2float(a) <= __half2float(b); }
inline bool __hgt(__half a, __half b) { return __half2float(a) > __half2float(b); }
inline bool __hge(__half a, __half b) { return __half2float(a) >= __half2float(b); }
inline bool __hisnan(__half a) { return (a.bits & 0x7fff) > 0x7c00; }
inline __half operator+(__half a, __half b) { return __hadd(a, b); }
inline __half operator-(__half a, __half b) { return __hsub(a, b); }
inline __half operator*(__half a, __half b) { return __hmul(a, b); }
inline __half operator/(__half a, __half b) { return __hdiv(a, b); }

inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
#define NNZ_HALF2(name, one) \
    inline __half2 name(__half2 a, __half2 b) { return {one(a.x, b.x), one(a.y, b.y)}; }
NNZ_HALF2(__hadd2, __hadd)
NNZ_HALF2(__hsub2, __hsub)
NNZ_HALF2(__hmul2, __hmul)
NNZ_HALF2(__hmax2, __hmax)
NNZ_HALF2(__hmin2, __hmin)
NNZ_HALF2(operator+, __hadd)
NNZ_HALF2(operator-, __hsub)
NNZ_HALF2(operator*, __hmul)
#undef NNZ_HALF2
inline __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }

// Adding halves atomically takes the whole word, as on the device.
inline __half2 atomicAdd(__half2* p, __half2 value) {
    const auto old = nnz_cpu::update(reinterpret_cast<unsigned*>(p), [&](unsigned word) {
        return static_cast<unsigned>(nnz_cpu::to_bits(__hadd2(nnz_cpu::from_bits<__half2>(word), value)));
    });
    return nnz_cpu::from_bits<__half2>(old);
}
