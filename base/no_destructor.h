// A static object that is never destroyed, so that no other static, and no
// thread still running at exit, finds it gone.
//
//   const Table& DefaultTable() {
//     static const NoDestructor<Table> table(kRows);
//     return *table;
//   }
#ifndef WEFT_BASE_NO_DESTRUCTOR_H_
#define WEFT_BASE_NO_DESTRUCTOR_H_

#include <new>
#include <utility>

namespace weft {

// Requires: lives in static storage.
template <typename T>
class NoDestructor {
 public:
  template <typename... Args>
  explicit NoDestructor(Args&&... args) {
    new (storage_) T(std::forward<Args>(args)...);
  }
  NoDestructor(const NoDestructor&) = delete;
  NoDestructor& operator=(const NoDestructor&) = delete;

  T* get() { return std::launder(reinterpret_cast<T*>(storage_)); }
  const T* get() const {
    return std::launder(reinterpret_cast<const T*>(storage_));
  }
  T& operator*() { return *get(); }
  const T& operator*() const { return *get(); }
  T* operator->() { return get(); }
  const T* operator->() const { return get(); }

 private:
  alignas(T) unsigned char storage_[sizeof(T)];
};

}  // namespace weft

#endif  // WEFT_BASE_NO_DESTRUCTOR_H_
