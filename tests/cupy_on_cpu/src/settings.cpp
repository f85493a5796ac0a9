// Settings from environment variables, and the counters that tests read.
#include <cstdlib>
#include "internal.h"

bool setting(const char* name, bool otherwise) {
  const char* value = getenv(name);
  return value && *value ? strcmp(value, "0") != 0 : otherwise;
}

static bool read_order() {
  const char* value = getenv("RIG_ORDER");
  return value && !strcmp(value, "reverse");
}

int devices() {
  static int count = getenv("RIG_DEVICES") ? atoi(getenv("RIG_DEVICES")) : 1;
  return count;
}

bool strict() {
  static bool value = setting("RIG_STRICT", true) && !guards();
  return value;
}

bool guards() {
  static bool value = setting("RIG_GUARD", false);
  return value;
}

bool reversed() {
  static bool value = read_order();
  return value;
}

bool one_by_one() {
  static bool value = setting("RIG_FAITHFUL", false) || reversed();
  return value;
}

bool tracing() {
  static bool value = setting("RIG_TRACE", false);
  return value;
}

bool logging() {
  static bool value = setting("RIG_LOG", false);
  return value;
}

const char* rig_home() {
  const char* value = getenv("RIG_HOME");
  return value && *value ? value : "/nonexistent";
}

Counters counters;
std::recursive_mutex state_lock;
static std::map<std::string, uint64_t> launches_by_name;

void count_by_name(const std::string& name) { launches_by_name[name]++; }

API void rig_counters(uint64_t* out) {
  Guard guard(state_lock);
  memcpy(out, &counters, sizeof counters);
}

API void rig_reset() {
  Guard guard(state_lock);
  memset(&counters, 0, sizeof counters);
  launches_by_name.clear();
}

// Lines "name<tab>count" into `out` if they fit; returns how many bytes they take.
API size_t rig_names(char* out, size_t room) {
  Guard guard(state_lock);
  std::string lines;
  for (auto& [name, count] : launches_by_name) lines += name + "\t" + std::to_string(count) + "\n";
  if (out && room > lines.size()) memcpy(out, lines.c_str(), lines.size() + 1);
  return lines.size() + 1;
}
