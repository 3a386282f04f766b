#pragma once

// Clang's way to ask; GCC has macros of its own instead.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif

namespace dynamiccl::testing {

/// Is this test program built with the address sanitizer, by GCC or clang?
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

/// Or with the thread sanitizer?
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace dynamiccl::testing
