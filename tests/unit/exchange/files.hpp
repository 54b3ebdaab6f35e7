// Folders and safetensors files for tests.
#pragma once

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "base/error.hpp"

namespace lockstep::tests {

namespace fs = std::filesystem;

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

inline void write_bytes(const fs::path& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    BOOST_REQUIRE(file.good());
}

inline std::string read_bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// A safetensors file of this header, with `data_bytes` zeros.
inline std::string safetensors(const std::string& header, std::size_t data_bytes) {
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes + header + std::string(data_bytes, '\0');
}

// The error that it throws, which must have this code and mention `part`.
inline void check_error(const std::function<void()>& work, ExitCode code, const std::string& part) {
    try {
        work();
        BOOST_ERROR("no error, though one that mentions " << part << " was expected");
    } catch (const Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == static_cast<int>(code), error.what());
        BOOST_TEST((std::string(error.what()).find(part) != std::string::npos),
                   "\"" << error.what() << "\" does not mention " << part);
    }
}

}  // namespace lockstep::tests
