// Raw .bin files of tokens, with and without llm.c's header, as a source of training data.
#include <algorithm>

#include "data/sources.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("raw/a.bin", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        std::uint64_t room = 1 << 20;
        const data::Sources sources({.paths = {path}}, room);
        const std::int64_t count = std::min<std::int64_t>(sources.tokens(), 64);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
        sources.copy(sources.tokens() - count, count, tokens.data());
        for (const std::int32_t token : tokens)
            fuzz::require(token >= 0 && token < sources.vocabulary(), "a token outside the vocabulary");
    });
    return 0;
}
