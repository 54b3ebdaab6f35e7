// What the tests of the configuration share.
#pragma once

#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "config/run_description.hpp"

// The sentence of the usage error that `action` throws; a failure when it throws none.
inline std::string sentence_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const lockstep::Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == 2);
        return error.what();
    }
    BOOST_ERROR("no error was thrown");
    return "";
}

inline void check_contains(const std::string& text, const std::string& part) {
    BOOST_TEST(text.find(part) != std::string::npos, "\"" << text << "\" lacks \"" << part << "\"");
}

// A small run that passes every check.
inline const char* small_run() {
    return R"(
[run]
name = "small"
[model]
mixer = "ttt-linear"
width = 64
layers = 2
heads = 2
vocabulary = 256
context = 128
[data]
train = ["a.h5"]
[batch]
global = 8
[schedule]
steps = 10
peak_lr = 1e-3
)";
}
