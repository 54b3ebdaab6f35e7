#include <boost/test/unit_test.hpp>
#include <string>

#include "base/utf8.hpp"

using namespace lockstep;

BOOST_AUTO_TEST_SUITE(utf8_text)

// One, two, three and four bytes: a, é, 世, and a rocket.
const std::string mixed = "a\u00e9\u4e16\U0001F680";

BOOST_AUTO_TEST_CASE(characters_are_counted_and_taken) {
    BOOST_TEST(character_count(mixed) == 4u);
    BOOST_TEST(character_count("") == 0u);
    BOOST_TEST(character_count("a\xff\xfe"
                               "b") == 4u);
    BOOST_TEST(first_character(mixed.substr(3)).code == 0x4e16u);
    BOOST_TEST(first_character(mixed.substr(3)).bytes == 3u);
    BOOST_TEST(first_character(mixed.substr(4)).bytes == 0u);
    for (const char* damaged : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\x80"})
        BOOST_TEST(first_character(damaged).bytes == 0u, damaged);
}

BOOST_AUTO_TEST_CASE(damage_is_found) {
    BOOST_TEST(first_damage(mixed) == std::string_view::npos);
    BOOST_TEST(first_damage("ab\xffz") == 2u);
    BOOST_TEST(first_damage(mixed.substr(0, 5)) == 3u);
}

BOOST_AUTO_TEST_CASE(no_character_is_cut) {
    const std::size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    for (std::size_t bytes = 0; bytes <= mixed.size(); ++bytes)
        BOOST_TEST(whole_characters(std::string_view(mixed).substr(0, bytes)) == expected[bytes]);
    // What is no character is nothing to wait for.
    BOOST_TEST(whole_characters("ab\x80\x80\x80\x80") == 6u);
    BOOST_TEST(whole_characters("ab\xff") == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
