// Small models that transformers, or the authors of TTT, made with random weights: their logits are computed here to
// the same numbers. tools/compare_hugging_face --record writes the folders; it runs this program on others as well.
#define BOOST_TEST_MODULE hugging_face
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "checkpoint/stream.hpp"
#include "exchange/folder.hpp"
#include "exchange/peft.hpp"
#include "kernels/backend.hpp"
#include "model/decoder.hpp"
#include "model/stage.hpp"
#include "places.hpp"

using namespace lockstep;

namespace {

struct Expected {
    std::vector<std::int32_t> tokens;
    std::vector<float> logits;  // [tokens, vocabulary]
};

Expected read_expected(const std::string& folder) {
    const exchange::SafetensorsFile file(folder + "/expected.safetensors");
    Expected expected;
    for (const exchange::StoredTensor& tensor : file.tensors()) {
        const auto count = static_cast<std::size_t>(element_count(tensor.shape));
        if (tensor.name == "tokens" && tensor.type == "I32") {
            expected.tokens.resize(count);
            std::memcpy(expected.tokens.data(), file.data(tensor), tensor.bytes);
        } else if (tensor.name == "logits" && tensor.type == "F32") {
            expected.logits.resize(count);
            std::memcpy(expected.logits.data(), file.data(tensor), tensor.bytes);
        }
    }
    BOOST_TEST_REQUIRE(!expected.tokens.empty());
    BOOST_TEST_REQUIRE(!expected.logits.empty());
    return expected;
}

// The largest difference, as a share of the largest logit.
double difference(const float* computed, const float* expected, std::size_t count) {
    double largest = 0, size = 1;
    for (std::size_t i = 0; i < count; ++i) {
        BOOST_TEST_REQUIRE(std::isfinite(computed[i]));
        largest = std::max(largest, std::abs(static_cast<double>(computed[i]) - expected[i]));
        size = std::max(size, std::abs(static_cast<double>(expected[i])));
    }
    return largest / size;
}

void try_folder(const std::string& path) {
    constexpr double tolerance = 1e-5;
    std::optional<exchange::Folder> whole;
    std::optional<exchange::AdapterFolder> adapters;
    if (exchange::is_adapter_folder(path))  // beside the model of another case
        adapters.emplace(path, path.substr(0, path.rfind("-adapters")));
    else
        whole.emplace(path);
    const exchange::Folder& folder = adapters ? adapters->base() : *whole;
    BOOST_TEST(folder.unknown_keys().empty());
    const config::ModelDescription& model = adapters ? adapters->model() : folder.model();
    Expected expected = read_expected(path);
    const auto vocabulary = static_cast<std::size_t>(model.vocabulary);
    BOOST_TEST_REQUIRE(expected.logits.size() == expected.tokens.size() * vocabulary);

    const auto backend = kernels::make_cpu_backend();
    model::ParameterSet parameters({}, model::describe_parameters(model, model::whole_model(model)), false);
    std::vector<checkpoint::Entry> entries;
    for (const auto& parameter : parameters.descriptions())
        entries.push_back(checkpoint::whole("parameters/" + parameter.name, parameters.value(parameter.name), nullptr));
    checkpoint::fill(entries, adapters ? adapters->source() : folder.source());

    model::StageOptions options;
    options.range = model::whole_model(model);
    options.shape = {1, static_cast<std::int64_t>(expected.tokens.size())};
    options.training = false;
    model::Stage stage(*backend, parameters, model, options);
    std::vector<float> logits(expected.logits.size());
    stage.forward(0, Tensor(expected.tokens.data(), Type::int32, {options.shape.rows()}));
    stage.logits(0, Tensor(logits.data(), Type::fp32, {options.shape.rows(), model.vocabulary}));
    double largest = difference(logits.data(), expected.logits.data(), logits.size());

    // Token by token, as text is generated.
    model::Decoder decoder(*backend, parameters, model, options.shape.rows());
    for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
        const std::vector<float>& next = decoder.feed({expected.tokens[i]});
        BOOST_TEST_REQUIRE(next.size() == vocabulary);
        largest = std::max(largest, difference(next.data(), expected.logits.data() + i * vocabulary, vocabulary));
    }
    BOOST_TEST(largest < tolerance, path << ": the logits differ by " << largest);
    BOOST_TEST_MESSAGE(path << ": largest difference of logits: " << largest);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_logits_are_those_of_the_other_program) {
    const auto& suite = boost::unit_test::framework::master_test_suite();
    std::vector<std::string> folders(suite.argv + 1, suite.argv + suite.argc);
    if (folders.empty())
        for (const auto& entry : std::filesystem::directory_iterator(tests::source_path("tests/hugging_face")))
            if (entry.is_directory()) folders.push_back(entry.path().string());
    std::sort(folders.begin(), folders.end());
    BOOST_TEST_REQUIRE(!folders.empty());
    for (const std::string& folder : folders) BOOST_TEST_CONTEXT(folder) try_folder(folder);
}
