// What a node's memory has left, from files as the system writes them.
#define BOOST_TEST_MODULE available_memory
#include "device/available_memory.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(the_memory_that_is_left_is_the_least_of_all_limits) {
    namespace fs = std::filesystem;
    const fs::path root = fs::temp_directory_path() / ("lockstep-available-" + std::to_string(::getpid()));
    const auto write = [&](const std::string& path, const std::string& text) {
        fs::create_directories((root / path).parent_path());
        std::ofstream(root / path) << text;
    };
    BOOST_TEST(available_memory(root.string()) == std::numeric_limits<std::uint64_t>::max());
    write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    800 kB\n");
    BOOST_TEST(available_memory(root.string()) == 800u * 1024);
    write("proc/self/cgroup", "4:memory:/job\n0::/user/job\n");
    write("sys/fs/cgroup/user/job/memory.max", "max\n");
    write("sys/fs/cgroup/user/job/memory.current", "5000\n");
    BOOST_TEST(available_memory(root.string()) == 800u * 1024);
    write("sys/fs/cgroup/user/memory.max", "700000\n");
    write("sys/fs/cgroup/user/memory.current", "500000\n");
    write("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 100000\n");
    BOOST_TEST(available_memory(root.string()) == 300'000u);
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "200000\n");
    write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "250000\n");
    BOOST_TEST(available_memory(root.string()) == 0u);
    fs::remove_all(root);
}
