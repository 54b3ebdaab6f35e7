// Fibers: stacks and the switch between them (Boost.Context's fcontext, the cheapest there is), known to
// AddressSanitizer.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace lockstep::emulation {

// A stack from one mapping, with a page below it that faults.
class Stack {
  public:
    Stack();
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    ~Stack();
    void* top() const;
    void* bottom() const { return bottom_; }
    static std::size_t size();
    void forget() const;  // frames on it are given up: AddressSanitizer's marks are wiped

  private:
    void* mapping_;
    void* bottom_;
};

// What can be switched to: a fiber, or (without `start`) the code that starts fibers.
class Fiber {
  public:
    Fiber() = default;
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Runs `body`, which must never return, at the first switch to it.
    void start(const Stack& stack, void (*body)());
    bool started() const { return context_ != nullptr; }
    void abandon() { context_ = nullptr; }
    // Leaves `from`, which runs now, for `to`; returns when somebody switches back.
    static void switch_to(Fiber& from, Fiber& to);

  private:
    static void enter(boost::context::detail::transfer_t transfer);
    void arrived(boost::context::detail::transfer_t transfer);

    boost::context::detail::fcontext_t context_ = nullptr;
    void (*body_)() = nullptr;
    void* fake_stack_ = nullptr;
    const void* bottom_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace lockstep::emulation
