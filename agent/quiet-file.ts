// Reading small files that may not be there, or not be what they should: at most so many bytes, never waiting for a
// writer (a pipe in a log's place would hold a thread for ever), never an error.

import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

/** Null where there is none, or it may not be read. Close it with `closeQuietly`. */
export async function openQuietly(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    // Not there, another user's, or a folder that is gone: no file.
    return null;
  }
}

export async function closeQuietly(file: FileHandle): Promise<void> {
  try {
    await file.close();
  } catch {
    // Nothing was written, so nothing is lost.
  }
}

/** The first `maxBytes` of it as text; null where it cannot be read. */
export async function readQuietly(path: string, maxBytes: number): Promise<string | null> {
  const file = await openQuietly(path);
  if (file === null) return null;
  try {
    const buffer = Buffer.alloc(maxBytes);
    let length = 0;
    while (length < maxBytes) {
      const { bytesRead } = await file.read(buffer, length, maxBytes - length, null);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    return buffer.toString('utf8', 0, length);
  } catch {
    // A folder, a pipe that nobody writes to, a process that has just ended.
    return null;
  } finally {
    await closeQuietly(file);
  }
}
