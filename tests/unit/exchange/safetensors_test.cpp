// The safetensors reader and writer.
#define BOOST_TEST_MODULE safetensors
#include "exchange/safetensors.hpp"

#include "exchange/json.hpp"
#include "exchange/tensor_files.hpp"
#include "files.hpp"

using namespace lockstep;
using namespace lockstep::exchange;
using namespace lockstep::tests;

namespace {

const std::string tensor_a = R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
const std::string tensor_b = R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]})";

void check_damaged(const std::string& header, std::size_t data_bytes, const std::string& part) {
    BOOST_TEST_CONTEXT(header.substr(0, 200)) {
        check_error([&] { static_cast<void>(parse_safetensors_header(header, data_bytes, "file")); }, ExitCode::damaged,
                    part);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_header_is_read) {
    const auto tensors = parse_safetensors_header(
        R"({"__metadata__":{"format":"pt"},)" + tensor_b + "," + tensor_a + "}   ", 34, "file");
    BOOST_TEST_REQUIRE(tensors.size() == 2u);
    BOOST_TEST(tensors[0].name == "a");
    BOOST_TEST((tensors[0].shape == Shape{2, 3}));
    BOOST_TEST(tensors[0].bytes == 24u);
    BOOST_TEST(tensors[1].name == "b");
    BOOST_TEST(tensors[1].type == "BF16");
    BOOST_TEST(tensors[1].first == 24u);
    // No axes: one number. An axis of nothing: no bytes.
    BOOST_TEST(parse_safetensors_header(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4, "f").size() ==
               1u);
    BOOST_TEST(parse_safetensors_header(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})", 0, "f").size() ==
               1u);
    BOOST_TEST(parse_safetensors_header("{}", 0, "f").empty());
}

BOOST_AUTO_TEST_CASE(what_the_format_does_not_allow_is_damage) {
    check_damaged("", 0, "begin with");
    check_damaged(" {}", 0, "begin with");
    check_damaged("[]", 0, "begin with");
    check_damaged("{", 0, "not JSON");
    check_damaged("{}x", 0, "not JSON");
    check_damaged("{\"a\xff\":{}}", 0, "not JSON");
    check_damaged("{" + tensor_a + "," + tensor_a + "}", 24, "twice");
    check_damaged(R"({"a":5})", 0, "number 5");
    check_damaged(R"({"a":"F32"})", 0, "string");
    check_damaged(R"({"a":[1]})", 0, "array");
    check_damaged(R"({"a":null})", 0, "value");
    check_damaged(R"({"a":{}})", 0, "dtype, shape and data_offsets");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "dtype, shape and data_offsets");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "unknown key more");
    check_damaged(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice");
    check_damaged(R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, "number 5");
    check_damaged(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "number 1");
    check_damaged(R"({"a":{"dtype":"F32","shape":{"b":1},"data_offsets":[0,4]}})", 4, "object");
    check_damaged(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "array");
    check_damaged(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole number");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "whole number");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1e30],"data_offsets":[0,4]}})", 4, "whole number");
    check_damaged(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "axis");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "first byte and an end");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "two offsets");
    check_damaged(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "first byte and an end");
    check_damaged(R"({"__metadata__":{"a":{"b":"c"}}})", 0, "object");
    check_damaged(R"({"__metadata__":{"a":1}})", 0, "number 1");
    check_damaged("{\"" + std::string(100'000, 'a') + "\":{}}", 0, "100000 characters");
    std::string axes = "1";
    for (int i = 0; i < 40; ++i) axes += ",1";
    check_damaged(R"({"a":{"dtype":"F32","shape":[)" + axes + R"(],"data_offsets":[0,4]}})", 4, "axes");
    std::string deep(100'000, '[');
    check_damaged(R"({"a":{"dtype":"F32","shape":)" + deep, 4, "array");
}

BOOST_AUTO_TEST_CASE(the_bytes_must_be_those_of_the_shapes_without_holes_and_overlaps) {
    const auto one = [](const std::string& shape, const std::string& offsets) {
        return R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}";
    };
    check_damaged(one("2", "0,4"), 4, "not [2]");
    check_damaged(one("1", "0,5"), 5, "not [1]");
    check_damaged(one("0", "0,4"), 4, "not [0]");
    // 2^62 · 4 elements of 4 bytes are 0 bytes modulo 2^64.
    check_damaged(one("4611686018427387904,4", "0,0"), 0, "not [");
    check_damaged(one("4611686018427387904,4", "0,16"), 16, "not [");
    check_damaged(one("9223372036854775807,2,2", "0,4"), 4, "not [");
    check_damaged(one("1", "4,8"), 8, "expected ");
    check_damaged(one("1", "0,4"), 8, "the data, which has 8");
    check_damaged(one("2", "0,8"), 4, "cut short");
    check_damaged(one("1", "18446744073709551612,18446744073709551615"), 4, "");
    check_damaged("{" + tensor_a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[20,28]}})", 28, "expected ");
    check_damaged("{" + tensor_a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[28,32]}})", 32, "expected ");
    check_damaged("{" + tensor_a + R"(,"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24, "expected ");
}

BOOST_AUTO_TEST_CASE(types_are_refused_by_name) {
    check_error(
        [] {
            static_cast<void>(
                parse_safetensors_header(R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", 4, "file"));
        },
        ExitCode::usage, "F3");
    const auto tensors =
        parse_safetensors_header(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8, "file");
    check_error([&] { static_cast<void>(compute_type(tensors[0], "file")); }, ExitCode::usage, "I64");
}

BOOST_AUTO_TEST_CASE(names_are_shown_escaped_and_bounded) {
    BOOST_TEST(shown_name("model.norm") == "model.norm");
    BOOST_TEST(shown_name("a\n\x1b[2J\x7f\"\xC2\x9B") == "a\\n\\u001b[2J\\u007f\\\"\\u009b");
    BOOST_TEST(shown_name("\xff") == "\\ufffd");
    BOOST_TEST(shown_name(std::string(100, 'a')) == std::string(80, 'a') + "…");
    BOOST_TEST(shown(Json{{"a", "b"}}) == R"({"a":"b"})");
    BOOST_TEST(shown(std::string(1000, 'a')).size() < 100u);
    const std::string odd = R"("a\u001b[2J\n":)";
    check_damaged("{" + odd + R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, R"(a\u001b[2J\n begins)");
    check_damaged("{" + odd + R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, R"(a\u001b[2J\n has)");
    check_damaged("{" + odd + "{}}", 0, R"(of a\u001b[2J\n)");
    const TemporaryFolder folder;
    const auto index_says = [&](const std::string& index, const std::string& part) {
        write_bytes(folder.path() / index_file_name, index);
        try {
            const TensorFiles files(folder.path().string());
            BOOST_ERROR("no error");
        } catch (const Error& error) {
            const std::string sentence = error.what();
            BOOST_TEST((sentence.find(part) != std::string::npos), sentence);
            BOOST_TEST((sentence.find('\x1b') == std::string::npos), sentence);
            BOOST_TEST(sentence.size() < 600u);
        }
    };
    index_says("{\"weight_map\":{" + odd + "[\"" + std::string(100'000, 'a') + "\"]}}", R"(a\u001b[2J\n is)");
    index_says("{\"weight_map\":{" + odd + R"("\u001b.safetensors"}})", R"(lacks \u001b.safetensors)");
}

BOOST_AUTO_TEST_CASE(an_index_of_many_names_is_read_at_once) {
    const TemporaryFolder folder;
    write_bytes(folder.path() / "one.safetensors", safetensors("{" + tensor_a + "}", 24));
    std::string index = R"({"weight_map":{"a":"one.safetensors")";
    for (int i = 0; i < 300'000; ++i) index += fmt::format(R"(,"a{}":"one.safetensors")", i);
    write_bytes(folder.path() / index_file_name, index + "}}");
    check_error([&] { TensorFiles files(folder.path().string()); }, ExitCode::damaged, "does not hold it");
}

BOOST_AUTO_TEST_CASE(a_file_is_as_long_as_it_says) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "x.safetensors").string();
    const auto check_file = [&](const std::string& bytes, const std::string& part) {
        write_bytes(path, bytes);
        check_error([&] { SafetensorsFile file(path); }, ExitCode::damaged, part);
    };
    check_file("", "0 bytes");
    check_file("1234567", "7 bytes");
    check_file(std::string("\x10\0\0\0\0\0\0\0{}", 10), "cut short");
    check_file(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 100000000");
    check_file(safetensors("{" + tensor_a + "}", 23), "cut short");
    check_file(safetensors("{" + tensor_a + "}", 25), "25");
    write_bytes(path, safetensors("{" + tensor_a + "}", 24));
    BOOST_TEST(SafetensorsFile(path).tensors().size() == 1u);
    check_error([&] { SafetensorsFile file(folder.path().string()); }, ExitCode::usage, "");
    check_error([&] { SafetensorsFile file(path + "x"); }, ExitCode::usage, "x");
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
    std::vector<StoredTensor> tensors = {{"one", "F32", {2, 2}, 0, 16}, {"\"two\"\n", "BF16", {3}, 0, 6}};
    const std::string beginning = safetensors_beginning(tensors);
    BOOST_TEST(beginning.size() % 8 == 0u);
    BOOST_TEST(tensors[1].first == 16u);
    const auto read = parse_safetensors_header(std::string_view(beginning).substr(8), 22, "file");
    BOOST_TEST_REQUIRE(read.size() == 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        BOOST_TEST(read[i].name == tensors[i].name);
        BOOST_TEST(read[i].type == tensors[i].type);
        BOOST_TEST((read[i].shape == tensors[i].shape));
        BOOST_TEST(read[i].first == tensors[i].first);
    }
    BOOST_TEST((beginning.find(R"("__metadata__":{"format":"pt"})") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(values_are_widened_wherever_they_lie) {
    const TemporaryFolder folder;
    // An odd header, so that the data are not aligned: 1, -2 and the largest finite number of each type.
    const std::string header =
        R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[6,12]},)"
        R"("f":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})";
    std::string bytes = safetensors(header.size() % 2 == 0 ? header + " " : header, 16);
    const std::string values("\x00\x3c\x00\xc0\xff\x7b\x80\x3f\x00\xc0\x7f\x7f\x00\x00\x80\x3f", 16);
    bytes.replace(bytes.size() - 16, 16, values);
    write_bytes(folder.path() / "model.safetensors", bytes);
    const TensorFiles files(folder.path().string());
    float read[3];
    read_elements(files.places().at("h"), 0, 3, read);
    BOOST_TEST(read[0] == 1.0f);
    BOOST_TEST(read[1] == -2.0f);
    BOOST_TEST(read[2] == 65504.0f);
    read_elements(files.places().at("b"), 1, 2, read);
    BOOST_TEST(read[0] == -2.0f);
    BOOST_TEST(read[1] == 0x1.fep127f);
    read_elements(files.places().at("f"), 0, 1, read);
    BOOST_TEST(read[0] == 1.0f);
}

BOOST_AUTO_TEST_CASE(an_index_must_fit_its_files) {
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    const auto check_index = [&](const std::string& index, ExitCode code, const std::string& part) {
        write_bytes(folder.path() / index_file_name, index);
        check_error([&] { TensorFiles files(path); }, code, part);
    };
    check_error([&] { TensorFiles files(path); }, ExitCode::usage, single_file_name);
    write_bytes(folder.path() / "pytorch_model.bin", "x");
    check_error([&] { TensorFiles files(path); }, ExitCode::usage, "pytorch_model.bin");
    const std::string a = "{" + tensor_a + "}";
    write_bytes(folder.path() / "one.safetensors", safetensors(a, 24));
    write_bytes(folder.path() / "two.safetensors", safetensors(a, 24));
    check_index("", ExitCode::damaged, "JSON");
    check_index("[]", ExitCode::damaged, "object");
    check_index("{}", ExitCode::damaged, "weight_map");
    check_index(R"({"weight_map":{}})", ExitCode::damaged, "empty");
    check_index(R"({"weight_map":{"a":5}})", ExitCode::damaged, "5");
    check_index(R"({"weight_map":{"a":"../one.safetensors"}})", ExitCode::damaged, "../one");
    check_index(R"({"weight_map":{"a":"/etc/passwd"}})", ExitCode::damaged, "passwd");
    check_index(R"({"weight_map":{"a":"three.safetensors"}})", ExitCode::damaged, "three");
    check_index(R"({"weight_map":{"b":"one.safetensors"}})", ExitCode::damaged, "does not hold");
    check_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})", ExitCode::damaged, "a is in");
    check_index("{\"weight_map\":" + std::string(100'000, '['), ExitCode::damaged, "levels");
    write_bytes(folder.path() / "two.safetensors",
                safetensors(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
    write_bytes(folder.path() / index_file_name, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    BOOST_TEST(TensorFiles(path).places().size() == 2u);
}
