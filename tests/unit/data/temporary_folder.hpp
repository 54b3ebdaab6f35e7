// A folder of its own for each test, gone afterwards, and what tests do with files.
#pragma once

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::random_device device;
        path_ = std::filesystem::temp_directory_path() /
                ("lockstep-data-" + std::to_string(getpid()) + "-" + std::to_string(device()));
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string path(const std::string& name) const { return (path_ / name).string(); }
    std::string folder(const std::string& name) const {
        std::filesystem::create_directories(path_ / name);
        return path(name);
    }
    std::string write(const std::string& name, const std::string& bytes) const {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream file(path_ / name, std::ios::binary);
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        BOOST_REQUIRE(file.good());
        return path(name);
    }

  private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Lines of words, the same on every machine.
inline std::string sample_text(std::size_t bytes, unsigned seed = 1) {
    const std::vector<std::string> words = {"tensor", "the",     "gradient", "of",        "a",           "loss",
                                            "with",   "respect", "to",       "weights",   "is",          "int",
                                            "main()", "{",       "}",        "return 0;", "caf\xC3\xA9", "\t"};
    std::minstd_rand random(seed);
    std::string text;
    while (text.size() < bytes) {
        text += words[random() % words.size()];
        text += random() % 9 == 0 ? "\n" : " ";
    }
    text.resize(bytes);
    if (static_cast<unsigned char>(text.back()) >= 0x80) text.back() = '.';
    return text;
}

inline std::string as_uint16(const std::vector<std::uint16_t>& tokens) {
    return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::uint16_t)};
}

// Fails unless `call` throws an Error with this code whose sentence holds each of the words.
template <class Call>
void check_error(Call call, lockstep::ExitCode code, const std::vector<std::string>& words) {
    try {
        call();
        BOOST_ERROR("no error was thrown");
    } catch (const lockstep::Error& problem) {
        const std::string sentence = problem.what();
        BOOST_TEST(static_cast<int>(problem.code()) == static_cast<int>(code), sentence);
        for (const auto& word : words)
            BOOST_TEST(sentence.find(word) != std::string::npos, sentence + " lacks " + word);
    }
}
