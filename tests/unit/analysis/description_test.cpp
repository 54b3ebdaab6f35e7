// The run description that a trace carries may be anything.
#define BOOST_TEST_MODULE description
#include "analysis/load/description.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(a_description_is_read_and_what_is_none_is_empty) {
    BOOST_TEST(analysis::description_table("[run]\nname = \"a\"\n").size() == 1u);
    BOOST_TEST(analysis::description_table("").empty());
    BOOST_TEST(analysis::description_table("not = = TOML").empty());
}

// The parser recurses for each part of a key.
BOOST_AUTO_TEST_CASE(a_key_of_very_many_parts_does_not_exhaust_the_stack) {
    std::string key = "a";
    for (int i = 0; i < 200'000; ++i) key += ".a";
    BOOST_TEST(analysis::description_table(key + " = 1\n").empty());
}
