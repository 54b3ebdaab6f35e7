#define BOOST_TEST_MODULE hdf5
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "hdf5/hdf5.hpp"
#include "places.hpp"

using namespace lockstep;
using hdf5::ElementType;
using hdf5::File;
using Names = std::vector<std::string>;

namespace {

std::string test_file(const std::string& name) {
    const std::string folder = tests::build_path("test-data/hdf5");
    std::filesystem::create_directories(folder);
    return folder + "/" + name + ".h5";
}

auto error_has(ExitCode code, const std::string& words) {
    return [=](const Error& error) {
        return error.code() == code && std::string(error.what()).find(words) != std::string::npos;
    };
}

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(attributes_come_back_as_they_were) {
    const std::string path = test_file("attributes"), long_text(100'000, 'x'), accents = "Größe 😀";
    {
        File file = File::create(path);
        file.make_group("a/b");
        file.write_attribute("/", "text", std::string("one"));
        file.write_attribute("/", "text", accents);  // replaces
        file.write_attribute("/", "empty", std::string());
        file.write_attribute("a/b", "long", long_text);
        file.write_attribute("a/b", "least", std::numeric_limits<std::int64_t>::min());
        file.write_attribute("a/b", "most", std::numeric_limits<std::uint64_t>::max());
        file.write_attribute("a/b", "third", 1.0 / 3);
        file.close();
    }
    const File file = File::open(path);
    BOOST_TEST(file.read_string("/", "text") == accents);
    BOOST_TEST(file.read_string("/", "empty") == "");
    BOOST_TEST((file.read_string("a/b", "long") == long_text));
    BOOST_TEST(file.read_integer("/a/b", "least") == std::numeric_limits<std::int64_t>::min());
    BOOST_TEST(file.read_unsigned("a/b", "most") == std::numeric_limits<std::uint64_t>::max());
    BOOST_TEST(file.read_number("a/b", "third") == 1.0 / 3);
    BOOST_TEST(file.read_as_text("a/b", "most") == "18446744073709551615");
    BOOST_TEST(file.read_as_text("a/b", "third") == "0.3333333333333333");
    BOOST_TEST(file.attribute_kind("a/b", "third") == "number");
    BOOST_TEST(file.attribute_kind("a/b", "least") == "integer");
    BOOST_TEST(file.attribute_kind("/", "text") == "text");
    BOOST_TEST(file.attributes("a/b") == (Names{"least", "long", "most", "third"}));
    BOOST_TEST(file.has_attribute("/", "text"));
    BOOST_TEST(!file.has_attribute("/", "none"));
    BOOST_CHECK_EXCEPTION(file.read_string("/", "none"), Error, error_has(ExitCode::damaged, "attribute none"));
    BOOST_CHECK_EXCEPTION(file.read_integer("/", "text"), Error, error_has(ExitCode::damaged, "not a number"));
    BOOST_CHECK_EXCEPTION(file.read_string("a/b", "least"), Error, error_has(ExitCode::damaged, "not a string"));
    BOOST_CHECK_THROW(file.has_attribute("none", "text"), Error);
}

BOOST_AUTO_TEST_CASE(more_attributes_than_fit_an_object_header_are_kept) {
    const std::string path = test_file("many_attributes");
    {
        File file = File::create(path);
        for (std::int64_t i = 0; i < 100; ++i) file.write_attribute("/", fmt::format("a{:03}", i), i);
        file.close();
    }
    const File file = File::open(path);
    BOOST_TEST(file.attributes("/").size() == 100u);
    BOOST_TEST(file.read_integer("/", "a077") == 77);
}

BOOST_AUTO_TEST_CASE(datasets_come_back_as_they_were) {
    const std::string path = test_file("datasets");
    const std::vector<float> values = {1, -2, 3.5f, 4, 5, 6};
    {
        File file = File::create(path);
        file.create_dataset("deep/down/values", ElementType::fp32, {2, 3});
        file.write("deep/down/values", values.data());
        file.create_dataset("scalar", ElementType::int64, {});
        const std::int64_t one = -1;
        file.write("scalar", &one);
        file.create_dataset("nothing", ElementType::uint16, {0});
        file.write("nothing", nullptr);
        file.write_text("text", std::string("a\0b", 3));
        BOOST_CHECK_EXCEPTION(file.create_dataset("scalar", ElementType::int64, {}), Error,
                              error_has(ExitCode::fault, "creating the dataset /scalar"));
        file.close();
    }
    const File file = File::open(path);
    BOOST_TEST(file.datasets("/") == (Names{"deep/down/values", "nothing", "scalar", "text"}));
    BOOST_TEST(file.datasets("/deep") == (Names{"deep/down/values"}));
    BOOST_TEST(file.exists("deep/down"));
    BOOST_TEST(file.exists("/deep/down/values"));
    BOOST_TEST(!file.exists("deep/up/values"));
    std::vector<float> found(6);
    file.read("deep/down/values", found.data());
    BOOST_TEST(found == values);
    std::vector<double> converted(6);
    file.read_as("deep/down/values", ElementType::fp64, converted.data());
    BOOST_TEST(converted == std::vector<double>(values.begin(), values.end()));
    std::int64_t one = 0;
    file.read("scalar", &one);
    BOOST_TEST(one == -1);
    file.read("nothing", nullptr);
    BOOST_TEST(file.read_text("text") == std::string("a\0b", 3));
    BOOST_CHECK_EXCEPTION(file.read_text("scalar"), Error, error_has(ExitCode::damaged, "does not hold bytes"));
    BOOST_CHECK_EXCEPTION(file.info("none"), Error, error_has(ExitCode::damaged, "/none"));
    const auto about = file.info("deep/down/values");
    BOOST_TEST(about.dimensions == (hdf5::Dimensions{2, 3}));
    BOOST_TEST(about.bytes == 24u);
    BOOST_TEST(about.contiguous);
    BOOST_TEST(about.type_name == "fp32");
    const std::string raw = bytes_of(path).substr(about.offset, about.bytes);
    BOOST_TEST((raw == std::string(reinterpret_cast<const char*>(values.data()), 24)));
}

BOOST_AUTO_TEST_CASE(large_datasets_are_aligned_and_allocated_at_once) {
    const std::string path = test_file("aligned");
    File file = File::create(path);
    file.create_dataset("small", ElementType::uint8, {3});
    file.create_dataset("large", ElementType::uint8, {100'000});
    const auto offset = file.info("large").offset;
    file.close();
    BOOST_TEST(offset > 0u);
    BOOST_TEST(offset % 4096 == 0u);
    BOOST_TEST(std::filesystem::file_size(path) >= offset + 100'000);
    BOOST_TEST(File::open(path).info("large").offset == offset);
}

BOOST_AUTO_TEST_CASE(records_are_matched_by_name) {
    struct Written {
        std::int64_t step;
        double loss;
        char host[8];
    };
    struct Read {
        double loss;
        std::int64_t step;
    };
    const std::string path = test_file("records");
    {
        const Written rows[2] = {{1, 0.5, "alpha"}, {2, 0.25, "omega"}};
        File file = File::create(path);
        file.create_dataset("rows",
                            hdf5::RecordType{{{"step", ElementType::int64, offsetof(Written, step)},
                                              {"loss", ElementType::fp64, offsetof(Written, loss)},
                                              {"host", ElementType::uint8, offsetof(Written, host), 8}},
                                             sizeof(Written)},
                            {2});
        file.write("rows", rows);
        file.close();
    }
    const File file = File::open(path);
    Read rows[2] = {};
    file.read_records("rows",
                      hdf5::RecordType{{{"loss", ElementType::fp64, offsetof(Read, loss)},
                                        {"step", ElementType::int64, offsetof(Read, step)}},
                                       sizeof(Read)},
                      rows);
    BOOST_TEST(rows[1].step == 2);
    BOOST_TEST(rows[1].loss == 0.25);
    BOOST_TEST(file.info("rows").type_name == "record");
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_opened_say_why) {
    const std::string path = test_file("opening");
    std::filesystem::remove(path);
    BOOST_CHECK_EXCEPTION(File::open(path), Error, error_has(ExitCode::usage, "does not exist"));
    BOOST_CHECK_EXCEPTION(File::open(tests::build_path("")), Error, error_has(ExitCode::usage, "is not a file"));
    std::ofstream(path).put('x');
    BOOST_CHECK_EXCEPTION(File::open(path), Error, error_has(ExitCode::damaged, "signature"));
    std::filesystem::resize_file(path, 0);
    BOOST_CHECK_EXCEPTION(File::open(path), Error, error_has(ExitCode::damaged, "empty"));
    BOOST_CHECK_EXCEPTION(File::create(path + "/x"), Error, error_has(ExitCode::usage, "cannot be written"));
}

BOOST_AUTO_TEST_CASE(a_file_moves_with_its_handle) {
    const std::string path = test_file("moved");
    File first = File::create(path);
    File second = std::move(first);
    second.write_attribute("/", "x", std::int64_t{1});
    second.close();
    second.close();
    BOOST_TEST(File::open(path).read_integer("/", "x") == 1);
}
