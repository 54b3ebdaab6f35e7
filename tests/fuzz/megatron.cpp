// Pairs of files as Megatron-LM writes them, as a source of training data. Parts: the tokens, the index.
#include <algorithm>

#include "data/sources.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 2);
    const std::string path = fuzz::write_file("pair/a.bin", parts[0]);
    fuzz::write_file("pair/a.idx", parts[1]);
    for (const bool with_ends : {false, true})
        fuzz::judge(size, [&] {
            std::uint64_t room = 1 << 20;
            const data::Sources sources({.paths = {path}, .with_document_ends = with_ends}, room);
            const std::int64_t count = std::min<std::int64_t>(sources.tokens(), 64);
            std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
            sources.copy(sources.tokens() - count, count, tokens.data());
            sources.copy(0, count, tokens.data());
            std::int64_t before = 0;
            for (const std::int64_t end : sources.document_ends()) {
                fuzz::require(end > before && end <= sources.tokens(), "a document ends where it cannot");
                before = end;
            }
        });
    return 0;
}
