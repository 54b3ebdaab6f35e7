#include "cuda_emulation/fibers.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "cuda_emulation/address_sanitizer.hpp"

namespace lockstep::emulation {

namespace context = boost::context::detail;

namespace {

constexpr std::size_t stack_bytes = (address_sanitizer ? 512 : 128) * 1024;

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

}  // namespace

Stack::Stack() {
    mapping_ = mmap(nullptr, stack_bytes + page_bytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED)
        throw fault_error("no memory for the stack of an emulated thread: {}", system_error_text());
    if (mprotect(mapping_, page_bytes(), PROT_NONE) != 0) {
        munmap(mapping_, stack_bytes + page_bytes());
        throw fault_error("no guard page below the stack of an emulated thread: {}", system_error_text());
    }
    bottom_ = static_cast<char*>(mapping_) + page_bytes();
}

Stack::~Stack() {
    forget();
    munmap(mapping_, stack_bytes + page_bytes());
}

void* Stack::top() const {
    return static_cast<char*>(bottom_) + stack_bytes;
}

std::size_t Stack::size() {
    return stack_bytes;
}

void Stack::forget() const {
    allow(bottom_, stack_bytes);
}

void Fiber::start(const Stack& stack, void (*body)()) {
    stack.forget();
    body_ = body;
    bottom_ = stack.bottom();
    size_ = Stack::size();
    fake_stack_ = nullptr;
    context_ = context::make_fcontext(stack.top(), Stack::size(), enter);
}

// `transfer` tells where the fiber that was left goes on. Its own stack is learnt here where it is not known: that of
// the code that starts fibers.
void Fiber::arrived(context::transfer_t transfer) {
    auto& left = *static_cast<Fiber*>(transfer.data);
    left.context_ = transfer.fctx;
#if defined(LOCKSTEP_ADDRESS_SANITIZER)
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
    if (left.body_ == nullptr) {
        left.bottom_ = bottom;
        left.size_ = size;
    }
#endif
}

namespace {
Fiber* entered = nullptr;  // the fiber of the switch under way
}

void Fiber::enter(context::transfer_t transfer) {
    Fiber& fiber = *entered;
    fiber.arrived(transfer);
    fiber.body_();
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
    entered = &to;
#if defined(LOCKSTEP_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.size_);
#endif
    from.arrived(context::jump_fcontext(to.context_, &from));
}

}  // namespace lockstep::emulation
