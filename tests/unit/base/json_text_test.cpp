#include "base/json_text.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

using namespace lockstep;
using Json = nlohmann::json;

namespace {

std::string nested(std::size_t levels, const std::string& opening, const std::string& closing) {
    std::string text;
    for (std::size_t i = 0; i < levels; ++i) text += opening;
    text += "1";
    for (std::size_t i = 0; i < levels; ++i) text += closing;
    return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(json_is_taken_to_its_deepest_level_and_no_further) {
    for (const auto& [opening, closing] : {std::pair("[", "]"), std::pair("{\"a\": ", "}")}) {
        BOOST_TEST(!nests_deeper(nested(deepest_json, opening, closing)));
        BOOST_TEST(nests_deeper(nested(deepest_json + 1, opening, closing)));
        BOOST_TEST(!parse_json<Json>(nested(deepest_json, opening, closing)).is_discarded());
        BOOST_TEST(parse_json<Json>(nested(1'000'000, opening, closing)).is_discarded());
    }
}

BOOST_AUTO_TEST_CASE(brackets_side_by_side_or_in_text_are_not_levels) {
    std::string list = "[";
    for (int i = 0; i < 1000; ++i) list += "[],{\"a\":{}},";
    list += "\"" + std::string(1000, '[') + "\\\"[[\\\\\", [1]]";
    BOOST_TEST(!nests_deeper(list, 3));
    BOOST_TEST(nests_deeper(list, 2));
    BOOST_TEST(parse_json<Json>(list).size() == 2002u);
}

BOOST_AUTO_TEST_CASE(what_is_not_json_is_discarded) {
    for (const char* text : {"", "{", "]", "{\"a\"", "\"\\", "[1,]", "]]]]"})
        BOOST_TEST(parse_json<Json>(text).is_discarded(), text);
}
