#include <cstdio>

#include "base/error.hpp"
#include "command.hpp"

namespace lockstep::commands {

void print_result(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        throw fault_error("cannot print the result: {}", system_error_text());
}

}  // namespace lockstep::commands
