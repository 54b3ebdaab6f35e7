#include "base/error.hpp"

#include <cerrno>
#include <cstring>

namespace lockstep {

std::string system_error_text() {
    return std::strerror(errno);
}

void contract_failed(const char* condition, const char* file, int line) {
    throw fault_error("internal error: assertion {} failed ({}:{}); please report this with the command that caused it",
                      condition, file, line);
}

}  // namespace lockstep
